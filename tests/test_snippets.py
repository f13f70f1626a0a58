"""Every snippet of every page is run by a test, or NOT_RUN says why not."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from deploy.local.ports import free_port
from omdml.streams.catalogues.opening import open_catalogue
from omdml.workers.cli import main
from omdml.workers.configuration.loading import load
from omdml.workers.demo.products import draw_products, picture
from tests.support.deep import deep
from tests.support.pages.documents import FENCE, block_that_begins, plain_steps, read
from tests.support.pages.sessions import READY, run_session
from tests.support.processes import ROOT

PAGES = ["README.md", *sorted(str(path.relative_to(ROOT)) for name in ("docs", "deploy") for path in
                              (ROOT / name).rglob("*.md"))]  # fmt: skip
SERVE = "omdml worker & omdml node &"
HERE, FEEDBACK = "tests.test_snippets", "tests.test_documents"
CATALOGUE = {"catalogues": {"shop": {"path": "items/"}}}

# A snippet, by its page and the beginning of its first line, and the test that runs it.
RUN = {
    ("README.md", "make demo"): "tests.integration.service.test_demo",
    ("deploy/HISTORY.md", "pip install 'omdml[dask]'"): "tests.workers.operate.history.test_bootstrap",
    ("deploy/HISTORY.md", "python deploy/examples/"): "tests.workers.operate.history.test_embedding",
    ("deploy/ITEMS.md", "curl -X PUT"): f"{HERE}.test_items_change_as_the_pages_show",
    ("deploy/ITEMS.md", '{"id": "red-shirt"'): f"{HERE}.test_items_change_as_the_pages_show",
    ("deploy/PARENTS.md", "[models.main]"): f"{HERE}.test_a_configuration_that_a_page_shows_is_valid",
    ("deploy/PICTURES.md", "pip install 'omdml[pictures]'"): f"{HERE}.test_pictures_and_words_are_searched",
    ("deploy/PICTURES.md", "omdml catalogue build items/ more.csv"): f"{HERE}.test_pictures_and_words_are_searched",
    ("deploy/PICTURES.md", "curl localhost:8080/search"): f"{HERE}.test_pictures_and_words_are_searched",
    ("deploy/PICTURES.md", "omdml search"): f"{HERE}.test_pictures_and_words_are_searched",
    ("deploy/PICTURES.md", "client.search"): f"{HERE}.test_pictures_and_words_are_searched",
    ("deploy/PICTURES.md", "pip install 'omdml[onnx]'"): "tests.streams.describers.test_onnx",
    ("deploy/RUNBOOK.md", "omdml doctor"): f"{FEEDBACK}.test_the_quickstarts_session_prints_what_it_shows",
    ("deploy/RUNBOOK.md", "kafka-configs.sh"): "tests.integration.service.test_pages",
    ("deploy/RUNBOOK.md", "redis-cli CONFIG"): "tests.integration.service.test_pages",
    ("deploy/RUNBOOK.md", "redis-cli -u"): "tests.integration.service.test_pages",
    ("deploy/RUNBOOK.md", "echo WORKER_OPTIONS"): "tests.deploy.test_units_run",
    ("deploy/SCALE.md", "[models.shop]"): f"{HERE}.test_a_configuration_that_a_page_shows_is_valid",
    ("deploy/SEARCH.md", 'curl localhost:8080/search -d \'{"queries"'): f"{HERE}.test_items_change_as_the_pages_show",
    ("deploy/SEARCH.md", 'curl localhost:8080/search -d \'{"id"'): f"{HERE}.test_items_change_as_the_pages_show",
    ("deploy/SEARCH.md", "[experiments.metric]"): f"{HERE}.test_a_configuration_that_a_page_shows_is_valid",
    ("deploy/SEARCH.md", "[catalogues.shop]"): f"{HERE}.test_a_configuration_that_a_page_shows_is_valid",
    ("deploy/SEARCH.md", "$ omdml compare-live"): "tests.workers.commands.test_compare_live",
    ("deploy/SEARCH.md", '{"id": "17", "price"'): "tests.workers.node.attributes.test_filters",
    ("deploy/SEARCH.md", '{"brand": "acme"'): "tests.workers.node.attributes.test_filters",
    ("deploy/SECURITY.md", "kafka-acls.sh"): "tests.deploy.test_security_page",
    ("deploy/SECURITY.md", "[models.shop]"): f"{HERE}.test_a_configuration_that_a_page_shows_is_valid",
    ("deploy/SECURITY.md", "[log]"): f"{HERE}.test_a_configuration_that_a_page_shows_is_valid",
    ("deploy/SECURITY.md", "[store]"): f"{HERE}.test_a_configuration_that_a_page_shows_is_valid",
    ("deploy/SHOP.md", "mkdir try"): "tests.deploy.test_examples",
    ("deploy/SHOP.md", "like p7"): "tests.deploy.test_examples",
    ("deploy/SHOP.md", "from omdml.client"): "tests.deploy.test_examples",
    ("deploy/VECTORS.md", "import numpy"): f"{HERE}.test_a_query_side_is_made_as_the_page_shows",
    ("deploy/VECTORS.md", "[models.shop]"): f"{HERE}.test_a_configuration_that_a_page_shows_is_valid",
    ("deploy/VECTORS.md", "import json\nimport os"): "tests.integration.indexes.test_sync",
    ("deploy/VECTORS.md", "omdml sync shop"): "tests.integration.indexes.test_processes",
    ("deploy/OPERATIONS.md", "[models.hot]"): f"{HERE}.test_a_configuration_that_a_page_shows_is_valid",
    ("deploy/local/README.md", "$ make services"): "tests.integration.local.test_services",
    ("deploy/local/README.md", "from deploy.local import KafkaServer"): "tests.integration.local.test_readme",
    ("deploy/local/README.md", "from deploy.local import KafkaCluster"): "tests.integration.local.test_readme",
    ("deploy/producers/README.md", "python with_kafka_python.py"): "tests.integration.producers.test_producers",
    ("docs/data.md", "id,color.0"): f"{HERE}.test_items_change_as_the_pages_show",
    ("docs/data.md", "omdml catalogue build"): f"{HERE}.test_pictures_and_words_are_searched",
    ("docs/data.md", "set,item"): f"{HERE}.test_sets_are_built_as_the_page_shows",
    ("docs/data.md", "curl -X PUT"): f"{HERE}.test_items_change_as_the_pages_show",
    ("docs/day-by-day.md", "omdml status"): f"{FEEDBACK}.test_the_quickstarts_session_prints_what_it_shows",
    ("docs/feedback.md", '{"type":'): f"{FEEDBACK}.test_an_event_that_the_documents_show_can_be_read",
    ("docs/feedback.md", "page,query"): "tests.streams.clicklogs.test_click_logs",
    ("docs/feedback.md", "<ol"): "tests.workers.node.http.test_click_js",
    ("docs/kafka.md", "[log]"): f"{FEEDBACK}.test_the_configuration_that_the_documents_show_is_valid",
    ("docs/kafka.md", "omdml topics create"): "tests.integration.service.test_pages",
    ("docs/kafka.md", "import json"): "tests.integration.service.test_pages",
    ("docs/kafka.md", "from confluent_kafka"): "tests.integration.producers.test_producers",
    ("docs/kafka.md", "clicks = KafkaProducer"): "tests.integration.service.test_pages",
    ("docs/learners.md", "from omdml import DCA"): f"{FEEDBACK}.test_the_python_that_the_documents_show_learns",
    ("docs/quickstart.md", "make demo"): "tests.integration.service.test_demo",
    ("docs/quickstart.md", "$ source"): f"{FEEDBACK}.test_the_quickstarts_session_prints_what_it_shows",
}
# A snippet, and why no test runs it.
NOT_RUN = {
    ("deploy/VECTORS.md", "[project.entry-points"): "needs a package; test_processes makes such an entry point",
    ("deploy/VECTORS.md", "import json\n\nimport lancedb"): "needs an index of a shop; test_lancedb reads one so",
    ("README.md", "mAP 0."): "output of `make demo`; benchmarks/claims compares its figures with measured ones",
    ("docs/quickstart.md", "  comparisons"): "output of `make demo`; benchmarks/claims compares its figures",
    ("deploy/EXPORT.md", "omdml export shop"): "names a version of its example; test_export runs the command",
    ("deploy/HISTORY.md", "omdml archive"): "needs a stopped worker; test_archives and test_bootstrap run the commands",
    ("deploy/HISTORY.md", "from pathlib"): "needs a model in Redis; test_embedding writes such a file",
    ("deploy/SEARCH.md", "$ omdml search"): "shows versions of its example; test_searches runs both commands",
    ("docs/day-by-day.md", "$ python -c"): "shows versions and times of its example; tests/workers run the commands",
    (
        "docs/day-by-day.md",
        "curl -H",
    ): "names a version of its example; tests/workers/node/http/test_operators sends it",
    (
        "docs/learners.md",
        "omdml replay",
    ): "learns a log of the reader's; test_replay and test_replay_page run the command",
    ("deploy/EXPORT.md", '{"manifest"'): "output with shortened hashes; tests/workers/operate reads real manifests",
    ("deploy/HISTORY.md", "pip install 'omdml[spark]'"): "needs a Spark cluster; test_bootstrap runs Spark's local one",
    ("deploy/PICTURES.md", '{"file"'): "output of the description of a damaged file, whose words depend on Pillow",
    ("deploy/RUNBOOK.md", "kubectl"): "needs a cluster; tests/deploy/test_kubernetes.py holds it against the manifests",
    ("deploy/RUNBOOK.md", "docker compose"): "needs Docker; tests/deploy/test_compose.py holds it against the file",
    ("deploy/VECTORS.md", "SELECT"): "needs an index of a shop; test_postgresql searches one with the same operator",
    ("deploy/compose/README.md", ""): "needs Docker; tests/deploy/test_compose.py checks the file against the code",
    ("deploy/container/README.md", ""): "builds an image, which takes ten minutes: `make image-test`",
    ("deploy/kubernetes/README.md", ""): "needs a cluster; tests/deploy/test_kubernetes.py validates the manifests",
    ("deploy/systemd/README.md", ""): "installs into /etc; tests/deploy/test_units_run.py runs the units under systemd",
    ("docs/index.md", ""): "the site's table of contents: `make docs`",
    ("docs/reference/python.md", ""): "the site's reference: `make docs`",
}
SNIPPETS = [(page, match[2]) for page in PAGES for match in FENCE.finditer(read(page))]
CONFIGURATIONS = [
    pytest.param(text, id=f"{page}: {text.splitlines()[0]}")
    for page, text in SNIPPETS
    if page != "docs/kafka.md" and re.match(r"\[(models|catalogues|experiments|log|store)\b", text)
]


def keys(page: str, text: str) -> list[tuple[str, str]]:
    return [key for key in (*RUN, *NOT_RUN) if key[0] == page and text.startswith(key[1])]


@pytest.mark.parametrize(
    ("page", "text"), [pytest.param(*snippet, id=f"{snippet[0]}: {snippet[1][:40]!r}") for snippet in SNIPPETS]
)
def test_a_snippet_has_a_test_or_a_reason(page, text):
    assert len(keys(page, text)) == 1, "name the test that runs it in RUN, or say in NOT_RUN why none does"


def test_the_lists_name_snippets_and_tests_that_exist():
    used = {key for snippet in SNIPPETS for key in keys(*snippet)}
    assert {*RUN, *NOT_RUN} == used
    for name in set(RUN.values()):
        module, _, function = name.rpartition(".")
        if function.startswith("test_") and not (ROOT / (name.replace(".", "/") + ".py")).exists():
            assert callable(getattr(importlib.import_module(module), function)), name
        else:
            assert (ROOT / (name.replace(".", "/") + ".py")).exists(), name


@pytest.mark.parametrize("text", CONFIGURATIONS)
def test_a_configuration_that_a_page_shows_is_valid(text, tmp_path):
    (tmp_path / "secret").write_text("redis://localhost:6379/0")
    (tmp_path / "secret").chmod(0o600)
    text = re.sub(r'"/run/secrets/[^"]*"', f'"{tmp_path / "secret"}"', text)
    (tmp_path / "omdml.toml").write_text(text)
    configuration = load(tmp_path / "omdml.toml", {}, {**CATALOGUE, "models": {"shop": {}, "shop-two": {}}})
    assert {"shop", "shop-two"} <= set(configuration.models)


@deep
def test_items_change_as_the_pages_show(tmp_path):
    table = block_that_begins(read("docs/data.md"), "id,color.0")
    draw = np.random.default_rng(0)
    rows = [f"{item},{','.join(f'{x:.3f}' for x in draw.random(5))},{item},zeta" for item in [*range(60), "old-hat"]]
    (tmp_path / "products.csv").write_text(table + "\n".join(row.replace("old-hat,zeta", "5,zeta") for row in rows))
    changes = block_that_begins(read("deploy/ITEMS.md"), '{"id": "red-shirt"')
    (tmp_path / "changes.jsonl").write_text(changes)
    (tmp_path / "omdml.toml").write_text('[catalogues.shop]\npath = "items/"\n[models.shop]\n')
    changing = plain_steps(block_that_begins(read("deploy/ITEMS.md"), "curl -X PUT"))
    vectors = '{"color": [0.93, 0.11], "shape": [0.2, 0.71, 0.55]}'
    searching = read("deploy/SEARCH.md")
    commands = [
        "omdml catalogue build items/ products.csv", SERVE, READY,
        *(step.command for step in changing),
        *(step.command.replace("{...}", vectors) for step in
          plain_steps(block_that_begins(read("docs/data.md"), "curl -X PUT"))),
        block_that_begins(searching, 'curl localhost:8080/search -d \'{"id"').replace('"17"', '"16"'),
        block_that_begins(searching, 'curl localhost:8080/search -d \'{"queries"').replace('"17"', '"16"'),
    ]  # fmt: skip
    printed = run_session(commands, tmp_path, free_port())
    for step, lines in zip(changing, printed[3:], strict=False):
        if step.output:
            # The page's catalogue was built without attributes, which count as changes.
            shown, answered = ({**json.loads(line), "position": 1} for line in (step.output[0], lines[-1]))
            assert answered == shown
    answer = json.loads(printed[-2][-1])
    assert len(answer["items"]) == 5
    assert all(item["attributes"]["price"] < 20 for item in answer["items"])
    assert len(json.loads(printed[-1][-1])["answers"]) == 2


def test_sets_are_built_as_the_page_shows(tmp_path, monkeypatch):
    page = read("docs/data.md")
    (tmp_path / "items.csv").write_text(block_that_begins(page, "id,color.0"))
    (tmp_path / "sets.csv").write_text(block_that_begins(page, "set,item"))
    (arguments,) = re.findall("`omdml (catalogue build .* --sets .*?)`", page)
    monkeypatch.chdir(tmp_path)
    built = CliRunner().invoke(main, arguments.split())
    assert built.exit_code == 0, built.output
    catalogue = open_catalogue(tmp_path / "items")
    (line,) = re.findall('`({"set".*?})`', page)
    first = json.loads(line)
    sets = {name: [catalogue.ids[row] for row in rows.tolist()] for name, rows in catalogue.sets.items()}
    assert sets == {first["set"]: first["items"], "outfit-2": ["blue-cup"]}


def write_products(table: Path, folder: Path, first: int, count: int) -> None:
    """Draw products as pictures in a folder, and write their titles and descriptions into a table."""
    folder.mkdir()
    draw = np.random.default_rng(first)
    lines = ["id,title,description"]
    for product in draw_products(first + count)[first:]:
        picture(product, draw).convert("RGB").save(folder / f"{product.id}.jpg")
        lines.append(f"{product.id},{product.color} {product.shape},{product.description}")
    table.write_text("\n".join(lines) + "\n")


@deep
def test_pictures_and_words_are_searched(tmp_path):
    write_products(tmp_path / "products.csv", tmp_path / "photos", 0, 50)
    write_products(tmp_path / "more.csv", tmp_path / "more", 50, 5)
    photo = (tmp_path / "photos" / "product-0001.jpg").read_bytes()
    for name in ("red-shirt.jpg", "photo.jpg"):
        (tmp_path / name).write_bytes(photo)
    (tmp_path / "omdml.toml").write_text('[catalogues.shop]\npath = "items/"\n[models.shop]\n')
    page = read("deploy/PICTURES.md")
    build = block_that_begins(page, "pip install 'omdml[pictures]'").splitlines()[1]
    add, *put = plain_steps(block_that_begins(page, "omdml catalogue build items/ more.csv"))
    searches = [
        *plain_steps(block_that_begins(page, "curl localhost:8080/search")),
        *plain_steps(block_that_begins(page, "omdml search")),
    ]
    port = free_port()
    calls = block_that_begins(page, "client.search")
    client = f"from omdml.client import Client; from pathlib import Path; client = Client('http://localhost:{port}')"
    (tmp_path / "calls.py").write_text(f"{client}\n{calls}")
    short = block_that_begins(read("docs/data.md"), "omdml catalogue build").replace("items/", "short/")
    commands = [
        short, build, add.command, SERVE, READY, *(step.command for step in put),
        *(step.command.replace("omdml search", f"omdml search --node http://localhost:{port}") for step in searches),
        "python calls.py",
    ]  # fmt: skip
    printed = run_session(commands, tmp_path, port)
    answers = [json.loads(lines[-1]) for lines in printed if lines and lines[-1].startswith('{"model"')]
    assert [len(answer["items"]) for answer in answers if "items" in answer] == [5, 5, 5]
    # The picture of red-shirt is the photo.
    assert [answer["items"][0]["id"] for answer in answers if "items" in answer][1] in ("red-shirt", "product-0001")


def test_a_query_side_is_made_as_the_page_shows(capsys):
    names: dict[str, object] = {}
    exec(block_that_begins(read("deploy/VECTORS.md"), "import numpy"), names)
    assert len(names["nearest"]) == 10
    assert "query_side=" in capsys.readouterr().out
