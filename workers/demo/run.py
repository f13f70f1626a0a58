"""The demo: real items, real processes, simulated people who search and mark, and the figures that result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import structlog
from rich.console import Console

from omdml.errors import ConfigurationError, OmdmlError
from omdml.learners import LEARNERS
from omdml.snapshot import Snapshot
from omdml.streams.stores.opening import open_store
from omdml.workers.demo.collection import Collection
from omdml.workers.demo.digits import load_digits
from omdml.workers.demo.observer import Learned, Measure, Observer
from omdml.workers.demo.people.crowd import Crowd, Task
from omdml.workers.demo.people.event_forms import triplet
from omdml.workers.demo.people.habits import Habits
from omdml.workers.demo.people.labels import Labels
from omdml.workers.demo.people.unmarked_queries import UnmarkedQueries
from omdml.workers.demo.products import COUNT, Products, draw_products
from omdml.workers.demo.scenarios import Subject, subject
from omdml.workers.demo.screen import Figures, open_screen
from omdml.workers.demo.services.environment import Servers, Stage, own_folder
from omdml.workers.demo.services.interruption import Interrupted, interruptible

# Comparisons after which people wait, and the answers are measured.
LOOKS = (20, 50, 100, 300, 1_000, 3_000)
# Seconds in which a process that stopped answering is expected to end.
DYING_S = 0.5
MAP = Measure("mAP", UnmarkedQueries.mean_average_precision)


def run_demo(
    *,
    learner: str,
    comparisons: int,
    rate: float,
    wrong: float,
    seed: int,
    kafka: str | None,
    redis: str | None,
    keep: str | Path | None,
    console: bool,
    pictures: bool,
) -> int:
    """Show on this machine how answers get better while people mark them; prints to standard output.

    The defaults are those of the command (``workers/commands/demo.py``).

    Parameters
    ----------
    learner
        The name of the learner. People send the kind of events that it takes.
    comparisons
        How many comparisons the people make.
    rate
        Comparisons per second.
    wrong
        The share of marks that say the opposite of the truth.
    seed
        Seed of the people's choices, and of the choice of test queries.
    kafka, redis
        ``host:port`` of a broker, and URL of a store, to use instead of a file and an embedded Valkey.
    keep
        An empty or new folder for everything that is written, to look at afterwards.
    console
        Simulate nobody. Whoever opens the console searches and marks, until Ctrl-C.
    pictures
        Show drawn products instead of digits. They are described by colors, edges, textures and words.

    Returns
    -------
    int
        The exit code: 0, or 130 after Ctrl-C. In both cases all processes have ended, and the servers are as before.

    Raises
    ------
    OmdmlError
        A process or server could not be started, or ended early.
    """
    screen = Console()
    try:
        with interruptible(), own_folder(keep) as folder, log_into(folder / "demo.log"):
            say = partial(screen.print, style="dim", highlight=False, soft_wrap=True)
            tell = partial(screen.print, highlight=False, soft_wrap=True)
            collection, shown = (
                products_and_subject(learner, seed, say) if pictures else digits_and_subject(learner, seed, say)
            )
            say(f"learner {learner}: people say {shown.about}")
            model = {"learner": learner, **shown.options}
            with Stage(collection.with_sets(shown.sets), model, Servers(kafka, redis), folder, say) as stage:
                tell(f"console: {stage.console}")
                if console:
                    tell("Mark what fits and what does not; Ctrl-C ends the demo.")
                    stage.run()
                say("the console answers until the demo ends; with omdml demo --console, until Ctrl-C")
                say(f"asking the node {len(shown.truths[0].held_out)} test queries")
                habits = Habits(wrong=wrong)
                name = collection.name
                task = Task(
                    stage.node, name, comparisons, rate, habits=habits, seed=seed, looks=LOOKS, token=stage.token
                )
                figures = perform(stage, task, shown, screen)
                if figures.looks:
                    tell(f"{figures.measure}: {figures.course}")
                tell(figures.last_line)
    except Interrupted as interrupted:
        screen.print("stopped; nothing that the demo started runs any more", highlight=False)
        return interrupted.exit_code
    return 0


def digits_and_subject(learner: str, seed: int, say: Callable[[str], None]) -> tuple[Collection, Subject]:
    """Handwritten digits, and what people say about them."""
    say("describing handwritten digits")
    digits = load_digits()
    return digits, subject(learner, digits, seed)


def products_and_subject(learner: str, seed: int, say: Callable[[str], None]) -> tuple[Collection, Subject]:
    """Drawn products, and what people say about them; raises ConfigurationError if the learner takes no triplets."""
    if "triplet" not in LEARNERS[learner].accepts:
        raise ConfigurationError(
            f"--pictures needs a learner that takes triplets, {learner} takes none: choose another learner"
        )
    say(f"drawing {COUNT:,} products")
    products = Products(draw_products(seed=seed), seed=seed)
    about = f"this has the {products.cared_for} of that one, whatever it is and whatever its color"
    return products, Subject(about, [Labels(dict(zip(products.ids, products.labels, strict=True)), seed)], triplet)


def perform(stage: Stage, task: Task, shown: Subject, console: Console) -> Figures:
    """Let people search and mark, and show figures meanwhile; returns the last figures. Raises OmdmlError."""
    store = open_store(stage.store)

    def learned() -> Learned:
        live = store.load(task.model)
        return learned_by(live[1]) if live else Learned()

    try:
        observer = Observer(task, shown.truths, MAP, learned, stage.check)
        with observer, open_screen(console) as show, Crowd(task, *shown.truths, form=shown.form) as crowd:
            return observer.watch(crowd, show)
    except OmdmlError:
        # A process that does not answer may have ended. Its last lines say more than this error.
        stage.check(DYING_S)
        raise


def learned_by(snapshot: Snapshot) -> Learned:
    """What a snapshot says about learning. Before the first comparison there is no mistake rate (it would be 0)."""
    weights = getattr(snapshot.metric, "weights", {}) if hasattr(LEARNERS[snapshot.learner], "weights") else {}
    return Learned(snapshot.progress.get("recent_mistake_rate") if snapshot.version else None, weights)


@contextmanager
def log_into(path: Path) -> Iterator[None]:
    """Write the log of this process to a file, so that it does not disturb the table on the screen."""
    before = structlog.get_config()
    with path.open("a") as file:
        structlog.configure(logger_factory=structlog.PrintLoggerFactory(file))
        try:
            yield
        finally:
            structlog.configure(**before)
