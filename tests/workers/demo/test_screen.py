"""What the demo shows: a table on a terminal, lines elsewhere, and a last line that never changes its form."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from omdml.client import Freshness
from omdml.workers.demo.screen import Figures, line, open_screen

KNOWN = Figures(
    sent=10_000,
    of=10_000,
    measure="mAP",
    before=0.671,
    now=0.889,
    measured=10_000,
    version=9_990,
    freshness=Freshness(p50_s=0.0091, p99_s=0.0308, count=500),
    mistake_rate=0.061,
    weights={"pixels": 0.4, "gradients": 0.6},
    looks=((20, 0.701), (1_000, 0.8)),
)
EARLY = Figures(sent=0, of=10, measure="mAP", before=0.5, now=0.5, measured=0, version=0)


def shown(figures, **options):
    """What a console of this kind prints."""
    file = io.StringIO()
    with open_screen(Console(file=file, width=120, **options)) as show:
        show(figures)
        show(figures)
    return file.getvalue()


def test_the_last_line_has_the_promised_form():
    assert KNOWN.last_line == "mAP 0.671 -> 0.889 after 10,000 comparisons; click-to-live p50 9 ms, p99 31 ms"


def test_queries_that_nobody_marks_are_called_test_queries():
    # "Held out" is the word for events that a worker keeps to judge with.
    screen = shown(KNOWN, force_terminal=True)
    assert ("test queries" in screen, "held out" in screen) == (True, False)


def test_a_measure_that_is_older_than_its_count_says_when_it_was_taken():
    underway = replace(KNOWN, sent=9_000, measured=7_654)
    assert line(underway).startswith("9,000 comparisons; mAP 0.671 -> 0.889 after 7,654; version")
    assert "mAP 0.671 -> 0.889 after 7,654" in shown(underway, force_terminal=True)


def test_the_measure_at_every_look_is_reported():
    assert (KNOWN.course, EARLY.course) == ("0.701 after 20, 0.800 after 1,000", "")
    assert "after 1,000 comparisons" in shown(KNOWN, force_terminal=True)


def test_a_pipe_gets_a_line_now_and_then_and_no_control_characters():
    assert shown(KNOWN) == line(KNOWN) + "\n"
    assert line(KNOWN).isprintable()


def test_a_terminal_gets_a_table_with_every_figure():
    table = shown(KNOWN, force_terminal=True)
    for text in ("10,000 of 10,000", "mAP 0.671 -> 0.889", "6.1%", "9,990", "p50 9 ms, p99 31 ms", "weight of pixels"):
        assert text in table


def test_what_is_not_known_yet_is_left_out():
    assert line(EARLY) == "0 comparisons; mAP 0.500 -> 0.500; version 0 live; click-to-live not yet"
    assert "mistakes" not in shown(EARLY, force_terminal=True)
