"""What commands say if there is one of something."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow.csv
import pyarrow.parquet
import pytest
from click.testing import CliRunner

from omdml.workers.cli import main
from omdml.workers.commands.store.snapshots import order_in_words
from omdml.workers.model.judging import held_out_accuracy
from omdml.workers.model.judging.held_out_accuracy import HeldOutAccuracy
from omdml.workers.model.progress import Progress
from omdml.workers.wiring import models


def test_one_event_that_is_held_out_is_one_event(monkeypatch):
    catalogue = SimpleNamespace(generation="g", features={})
    spec = SimpleNamespace(catalogue=catalogue, fresh=lambda: SimpleNamespace(metric=None))
    monkeypatch.setattr(models, "open_specs", lambda _: SimpleNamespace(find=lambda _: spec))
    monkeypatch.setattr(Progress, "of", lambda _: SimpleNamespace(hold_out=None))
    monkeypatch.setattr(held_out_accuracy, "plain_metric", lambda *_: None)
    saved = SimpleNamespace(generation="g", model="shop", metric=None)
    store = SimpleNamespace(peek=lambda _: saved)
    sentences = {}
    for events in (1, 2):
        monkeypatch.setattr(held_out_accuracy, "order_right", lambda *_, n=events: HeldOutAccuracy(0.0, n))
        sentences[events] = order_in_words(SimpleNamespace(match=lambda _: "shop"), store, saved)
    assert sentences[1].startswith("0.0% of 1 event (plain")
    assert sentences[2].startswith("0.0% of 2 events (plain")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_one_number_as_all_that_a_table_with_texts_is_compared_by_is_a_warning(tmp_path, kind):
    def warning(table, *options):
        source = tmp_path / f"items.{kind}"
        (tmp_path / "items.csv").write_text(table)
        if kind == "parquet":
            pyarrow.parquet.write_table(pyarrow.csv.read_csv(tmp_path / "items.csv"), source)
        words = ["catalogue", "build", str(tmp_path / "items"), str(source), "--no-map", "--replace", *options]
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 0, done.output
        return "".join(line for line in done.stderr.splitlines() if line.startswith("warning: "))

    table = "id,size_1,title,product type,price\na,1,red mug,mug,2\nb,2,blue cup,cup,3\nc,3,green bowl,bowl,4\n"
    message = warning(table)
    assert message.startswith("warning: each item has only one number as its vector, modality 'size'")
    assert "Texts were left out of the vectors: title, product type." in message
    assert "build again with --replace --text title --text 'product type'." in message
    assert warning(table, "--text", "title") == ""
    assert warning(table.replace("price", "size_2")) == ""
    assert warning(table, "--attributes", "price") == ""
