"""Makes another version live because a person says so, and keeps it live until that person says otherwise."""

from __future__ import annotations

from omdml.errors import NotKept, OmdmlError
from omdml.streams.protocols.store import NOBODY, Pointer, SnapshotStore, Why
from omdml.workers.versions.targets import Kind, check_target, not_taken_back, servable, since_reset

# A reason has at most so many characters.
MAX_REASON = 200
# The history's words for moves, as people make them.
MOVES = ("rolled back", "pinned", "unpinned", "moved")


class Overtaken(OmdmlError):
    """Somebody else moved the model since the history was read that this move is based on."""

    reason = "moved"


def check_seen(store: SnapshotStore, model: str, seen: int) -> None:
    """Raise Overtaken if the history has a move with a serial above ``seen``."""
    later = [line for line in store.history(model) if line["what"] in MOVES and line["serial"] > seen]
    if later:
        last = later[-1]
        who = f" by {last['actor']}" if last["actor"] else ""
        why = f" ({last['reason']})" if last["reason"] else ""
        raise Overtaken(
            f"model {model!r}: somebody moved it before you: {last['what']}, version {last['version']}{who}{why}. "
            "Nothing was changed. Look at the history, and move it again if you still want to"
        )


def rollback(
    store: SnapshotStore, model: str, version: int | None = None, *, kind: Kind | None, why: Why = NOBODY
) -> Pointer:
    """Go to a kept version (None: the one before the live one), and stay there.

    ``kind`` is the model's catalogue as it is now, None if that cannot be told. Raises NotKept, Unservable if nodes
    could not serve it, or CorruptError if its bytes are damaged. The history tells ``why``.
    """
    return _stay(store, model, before(store, model, kind) if version is None else version, kind, why)


def pin(
    store: SnapshotStore, model: str, version: int | None = None, *, kind: Kind | None, why: Why = NOBODY
) -> Pointer:
    """Stay at a kept version (None: the live one). Raises as ``rollback`` does."""
    return _stay(store, model, live(store, model).version if version is None else version, kind, why)


def unpin(store: SnapshotStore, model: str, *, why: Why = NOBODY) -> Pointer:
    """End a pin: make the newest version live, and follow what is learned. Without a pin, do nothing.

    Raises StoreError if the model has no live version.
    """
    pointer = live(store, model)
    return store.move(model, None, pin=False, why=why) if pointer.pinned else pointer


def _stay(store: SnapshotStore, model: str, version: int, kind: Kind | None, why: Why) -> Pointer:
    check_target(store, model, version, kind)
    return store.move(model, version, pin=True, why=why)


def live(store: SnapshotStore, model: str) -> Pointer:
    """The live pointer; raises StoreError if there is none."""
    pointer = store.current(model)
    if pointer is None:
        raise NotKept(f"model {model!r}: nothing is published in {store}: is a worker running?")
    return pointer


def before(store: SnapshotStore, model: str, kind: Kind | None) -> int:
    """The newest version before the live one that was live itself, was not taken back, and can be served.

    Raises StoreError if none is kept.
    """
    live_version = live(store, model).version
    lines = store.history(model)
    present, sound = since_reset(lines), not_taken_back(lines)
    was_live = [
        publication
        for publication in present
        if publication["what"] == "published" and publication["version"] < live_version and publication in sound
    ]
    for line in sorted(was_live, key=lambda line: int(line["version"]), reverse=True):
        if servable(store, model, line, kind):
            return int(line["version"])
    raise NotKept(
        f"model {model!r}: nothing older than version {live_version} is kept in {store} that nodes could serve: "
        "this is the oldest"
    )
