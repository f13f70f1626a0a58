"""A whole service in one folder, for the commands that look at it."""

from __future__ import annotations

from click.testing import CliRunner

from omdml.streams.files.source import FileSink, FileSource
from omdml.streams.stores.folder.store import DirectoryStore
from omdml.workers.cli import main
from omdml.workers.configuration.loading import load
from omdml.workers.doctor.checks import installation
from omdml.workers.doctor.findings import Level
from tests.support.worlds import World, events, letters, run_until_idle

UNKNOWN = b'{"type":"triplet","model":"shop","query":"i1","relevant":"i2","irrelevant":"nobody"}'


class Installation(World):
    """A log in files, a store in a folder, and a worker that comes and goes."""

    def __init__(self, folder) -> None:
        super().__init__(folder)
        self.folder, self.store = folder, DirectoryStore(folder / "state")
        self.sink = FileSink(folder / "feedback", fsync=False)
        self.table = {
            "log": {"path": str(folder / "feedback"), "letters": str(folder / "letters")},
            "store": {"url": f"dir:{folder}/state"},
            "catalogues": {"items": {"path": str(folder / "items")}},
            "models": {"shop": {"learner": "lomdml", "rank": 3}, "user-*": {"learner": "lomdml", "rank": 2}},
            "guard": {"on": False},
        }
        self.file = folder / "omdml.toml"
        self.file.write_text(
            f'[log]\npath = "{folder}/feedback"\nletters = "{folder}/letters"\n[store]\nurl = "dir:{folder}/state"\n'
            f'[catalogues.items]\npath = "{folder}/items"\n'
            '[models.shop]\nlearner = "lomdml"\nrank = 3\n[models."user-*"]\nlearner = "lomdml"\nrank = 2\n'
        )

    def tell(self, *payloads) -> None:
        for payload in payloads:
            self.sink.send(payload, "shop")
        self.sink.flush()

    def living(self):
        """A worker that has learned the whole log, and still holds it."""
        worker = self.worker(source=FileSource(self.folder / "feedback"))
        run_until_idle(worker)
        return worker

    def learn(self, count=60, seed=0, model="shop") -> None:
        """Have a worker learn events, save, and end; its letters are put into their folder."""
        self.tell(*events(count, seed, model))
        worker = self.living()
        worker.stop()
        worker.run()
        sink = FileSink(self.folder / "letters", fsync=False)
        for letter in letters(self):
            sink.send(letter.encode(), letter.model)
        sink.close()

    def findings(self):
        """Findings by check; the worst of a check with several."""
        levels = list(Level)
        every = sorted(
            installation.examine(load(None, {}, self.table)), key=lambda finding: levels.index(finding.level)
        )
        return {finding.check: finding for finding in every}

    def omdml(self, *arguments):
        """What a command prints, without the frames of tables."""
        printed = CliRunner().invoke(main, [*arguments, "-c", str(self.file)])
        assert printed.exit_code == 0, printed.output
        return " ".join(printed.output.replace("│", " ").split())


def problem(shop, check, level):
    """The text of a finding of this level."""
    finding = shop.findings()[check]
    assert finding.level is level, finding
    return finding.text
