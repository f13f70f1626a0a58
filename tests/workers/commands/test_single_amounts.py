"""What commands say if there is one of something."""

from __future__ import annotations

from types import SimpleNamespace

from omdml.workers.commands.store.snapshots import order_told
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
    told = {}
    for events in (1, 2):
        monkeypatch.setattr(held_out_accuracy, "order_right", lambda *_, n=events: HeldOutAccuracy(0.0, n))
        told[events] = order_told(SimpleNamespace(match=lambda _: "shop"), store, saved)
    assert told[1].startswith("0.0% of 1 event (plain")
    assert told[2].startswith("0.0% of 2 events (plain")
