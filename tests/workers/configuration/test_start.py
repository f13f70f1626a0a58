"""What a process does once its start is over."""

import gc

from omdml.workers.configuration.process import forget_start


def test_full_collections_pass_over_what_was_made_at_the_start() -> None:
    made = [[] for _ in range(1000)]
    before = gc.get_freeze_count()
    forget_start()
    assert gc.get_freeze_count() >= before + len(made)
    assert not any(thing is made for thing in gc.get_objects())
