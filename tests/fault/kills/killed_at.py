"""``python -m tests.fault.kills.killed_at STEP TIMES ...``: omdml with these arguments, killed with SIGKILL by itself
right after it has done a step of the protocol (workers/learning/partition/owned_partition.py) so many times. With a
STEP of ``paused:NAME`` it pauses itself instead, as a paused machine does.
"""

from __future__ import annotations

import os
import signal
import sys

from omdml.streams.files.source import FileSource
from omdml.streams.kafka.reading.source import KafkaSource
from omdml.streams.kafka.routing.transaction import KafkaTransactions
from omdml.streams.letters import DeadLetters
from omdml.streams.stores.folder import checkpoints as folder_checkpoints
from omdml.streams.stores.folder.journal import DirectoryJournal
from omdml.streams.stores.folder.store import DirectoryStore
from omdml.streams.stores.redis.store import RedisStore
from omdml.streams.stores.transactional.store import TransactionalStore
from omdml.workers.cli import main
from omdml.workers.learning.partition.claiming import Claiming
from omdml.workers.learning.partition.models import OwnedModels
from omdml.workers.learning.partition.owned_partition import OwnedPartition
from omdml.workers.learning.partition.watermark import Mark
from omdml.workers.operate.history.model import HistoryModel

STEPS = {
    "start": [(Mark, "start")],
    "claim": [(Claiming, "_let_continue")],
    "take": [(OwnedPartition, "_take")],
    "publish": [(OwnedModels, "_publish")],
    "save": [(OwnedModels, "write")],
    "letters": [(DeadLetters, "flush")],
    "mark, not looked at": [
        (DirectoryStore, "move_mark"),
        (RedisStore, "move_mark"),
        (TransactionalStore, "move_mark"),
    ],
    "mark": [(Mark, "move")],
    "commit": [(FileSource, "commit"), (KafkaSource, "commit")],
}
# Steps of a router (streams/kafka/routing/router.py).
ROUTE_STEPS = {
    "begin": [(KafkaTransactions, "begin")],
    "write": [(KafkaTransactions, "_await_written")],
    "offsets": [(KafkaTransactions, "send_offsets")],
    "committed": [(KafkaTransactions, "commit")],
}
# Steps of ``omdml bootstrap`` (workers/operate/history/bootstrap.py); "written" lies inside "saved".
BOOTSTRAP_STEPS = {
    "summed": [(HistoryModel, "decide")],
    "claimed": [(DirectoryStore, "claim"), (RedisStore, "claim")],
    "buried": [(DeadLetters, "flush")],
    "written": [(folder_checkpoints, "put")],
    "saved": [(DirectoryStore, "save"), (RedisStore, "replace")],
    "published": [(DirectoryStore, "publish"), (RedisStore, "publish")],
}
# The step of ``omdml topics rewind`` (workers/operate/topics.py).
REWIND_STEPS = {"model deleted": [(RedisStore, "delete")]}
# Steps of ``omdml forget``, ``learn-on`` and ``replay --publish --replace`` (workers/operate/published_replay.py).
REPLACE_STEPS = {
    "refusals": [(DeadLetters, "flush")],
    "owned": [(DirectoryStore, "claim")],
    "live": [(DirectoryStore, "publish")],
    "replaced": [(DirectoryStore, "save")],
    "history dropped": [(DirectoryJournal, "drop_entries")],
    "snapshots dropped": [(DirectoryJournal, "keep_only")],
    "all dropped": [(DirectoryStore, "drop_earlier")],
}


def kill_after(step: str, times: int) -> None:
    """Have this process end, or pause, after a step was done ``times`` times."""
    done, paused = 0, step.startswith("paused:")

    def counted(method):
        def wrapped(*arguments, **options):
            nonlocal done
            answer = method(*arguments, **options)
            done += 1
            if done == times:
                os.kill(os.getpid(), signal.SIGSTOP if paused else signal.SIGKILL)
            return answer

        return wrapped

    steps = STEPS | ROUTE_STEPS | BOOTSTRAP_STEPS | REWIND_STEPS | REPLACE_STEPS
    for owner, name in steps[step.removeprefix("paused:")]:
        setattr(owner, name, counted(getattr(owner, name)))


if __name__ == "__main__":
    kill_after(sys.argv[1], int(sys.argv[2]))
    main(sys.argv[3:])
