"""A log on real files, the worker that learns it, and the replay of it."""

from __future__ import annotations

import json

from click.testing import CliRunner

from omdml.streams.files.source import FileSink, FileSource
from omdml.streams.files.ungrouped import UngroupedFileSource
from omdml.streams.placement import Placement
from omdml.streams.stores.folder.store import DirectoryStore
from omdml.workers.cli import main
from omdml.workers.configuration.specs import Specs
from omdml.workers.operate.replay import ReplayedModel, read_whole, replayed_spec
from tests.support.worlds import World, run_until_idle

ALONE = Placement.first("murmur2", 1)


class LoggedShop(World):
    """One model on real files, and a configuration file for commands."""

    def __init__(self, folder, models=None, guard="false") -> None:
        models = models or {"shop": {"learner": "qwise"}, "user-*": {"learner": "lomdml", "rank": 2}}
        super().__init__(folder, models=models)
        self.folder, self.store = folder, DirectoryStore(folder / "state")
        # Always the same events are held out.
        self.store.make()
        (folder / "state" / "secret").write_text("07" * 32)
        self.sink = FileSink(folder / "feedback", fsync=False)
        self.file = folder / "omdml.toml"
        tables = "\n".join(
            f"[models.{json.dumps(name)}]\n"
            + "\n".join(f"{key} = {json.dumps(value)}" for key, value in options.items())
            for name, options in models.items()
        )
        self.file.write_text(
            f'[log]\npath = "{folder}/feedback"\nletters = "{folder}/letters"\n[store]\nurl = "dir:{folder}/state"\n'
            f'[catalogues.items]\npath = "{folder}/items"\n[guard]\non = {guard}\n{tables}\n'
        )

    @property
    def specs(self):
        return Specs(self.configuration, {"items": self.catalogue})

    def tell(self, *payloads, key="shop"):
        for payload in payloads:
            self.sink.send(payload, key)
        self.sink.flush()

    def log_read(self):
        return read_whole(UngroupedFileSource(self.folder / "feedback"))

    def worked(self):
        """Run a worker from the position in the store until it has learned the log, then stop it."""
        worker = self.worker(source=FileSource(self.folder / "feedback"))
        run_until_idle(worker)
        worker.stop()
        worker.run()
        return self.store.claim("shop").checkpoint

    def omdml(self, *options):
        return CliRunner().invoke(main, ["replay", "-c", str(self.file), "--model", "shop", *options])


def replayed(shop, learner=None, log=None):
    spec = replayed_spec(shop.specs, "shop", learner)
    model = ReplayedModel("shop", spec.fresh(), spec, ALONE, None)
    for records in log or shop.log_read():
        model.learn(records)
    model.finish()
    return model
