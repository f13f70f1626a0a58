"""Searches by words and by a picture, from Python and from the command line, against a real node."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from omdml.client import BadRequest
from omdml.workers.cli import main
from tests.support.catalogues.products import TEXT, described_catalogue, drawn
from tests.support.shops import Shop

PRODUCT, PICTURE = drawn()[7]


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path, items=described_catalogue)


@pytest.fixture
def omdml(server):
    """Runs ``omdml search``; answers its exit code and what it printed."""

    def run(*words):
        ran = CliRunner().invoke(main, ["search", *map(str, words), "--node", server.url], env={"COLUMNS": "160"})
        return ran.exit_code, ran.output

    return run


def test_a_picture_and_its_words_find_their_item(client):
    assert client.search(picture=PICTURE, text={TEXT: PRODUCT.description}, k=1).items[0].id == PRODUCT.id
    assert client.search(text={TEXT: PRODUCT.description}, k=3).items != client.search(picture=PICTURE, k=3).items


def test_the_node_says_what_it_cannot_describe(client):
    with pytest.raises(BadRequest, match="the picture cannot be used"):
        client.search(picture=b"no picture")
    with pytest.raises(BadRequest, match="occurs in the catalogue: use other words"):
        client.search(text={TEXT: "qwertz"})


def test_the_command_line_searches_by_words_and_a_picture(omdml, tmp_path):
    file = tmp_path / "photo.png"
    file.write_bytes(PICTURE)
    ended, output = omdml("--picture", file, "--text", f"{TEXT}={PRODUCT.description}", "-k", 1)
    assert (ended, PRODUCT.id in output) == (0, True)
    ended, output = omdml("--text", "red shirt")
    assert ended == 2
    assert "'red shirt' names no column, expected COLUMN=WORDS such as title='red shirt'" in output
