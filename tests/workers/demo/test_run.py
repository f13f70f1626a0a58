"""What the demo reports of its model, and whether its folder stays."""

from __future__ import annotations

import shutil

import pytest

from omdml.errors import ConfigurationError
from omdml.workers.demo.run import learned_by
from omdml.workers.demo.services.environment import own_folder
from omdml.workers.demo.services.interruption import Interrupted
from omdml.workers.demo.services.processes import ProcessError
from tests.support.shops import Shop


def test_before_anything_was_learned_there_is_no_mistake_rate(tmp_path):
    shop = Shop(tmp_path)
    assert learned_by(shop.snapshot(progress={"recent_mistake_rate": 0.0})).mistake_rate is None
    shop.learn(1)
    assert learned_by(shop.snapshot(progress={"recent_mistake_rate": 0.0})).mistake_rate == 0.0


@pytest.mark.parametrize(
    ("error", "stays"),
    [(None, False), (ProcessError("the node ended"), True), (ConfigurationError("no"), False), (Interrupted(2), False)],
    ids=["it ended well", "a process failed", "an option is wrong", "Ctrl-C"],
)
def test_the_folder_with_the_logs_stays_if_the_demo_fails(capsys, error, stays):
    folders = []

    def run():
        with own_folder(None) as folder:
            folders.append(folder)
            (folder / "node.log").write_text("why")
            if error:
                raise error

    if error:
        with pytest.raises(type(error)):
            run()
    else:
        run()
    assert folders[0].exists() is stays
    assert (str(folders[0]) in capsys.readouterr().err) is stays
    shutil.rmtree(folders[0], ignore_errors=True)
