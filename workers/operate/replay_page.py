"""Shows a replay as one HTML page: curves as SVG, figures as a table. It loads nothing and has no script."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

from omdml.workers.configuration.process import visible
from omdml.workers.configuration.wording import amount
from omdml.workers.operate.replay import CurvePoint, ReplayedModel, refusals

# Colours by Okabe and Ito: people with any colour vision can distinguish them, on white and on black.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8b7500", "#5b6b9a")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 340, 56, 140, 16, 44
# The least distance in pixels of two numbers under a chart.
TICK = 60
STYLE = """
:root { color-scheme: light dark; --ink: #1a1a1a; --soft: #5c5c5c; --line: #d9d9d9; --paper: #ffffff }
@media (prefers-color-scheme: dark) { :root { --ink: #eeeeee; --soft: #b0b0b0; --line: #444444; --paper: #161616 } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 50rem;
  margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2rem }
p.soft { color: var(--soft) }
svg { width: 100%; min-width: 34rem; height: auto }
svg text { fill: var(--soft); font-size: 13px } svg .grid { stroke: var(--line) }
svg .name { fill: var(--ink) }
div { overflow-x: auto } table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .25rem .75rem; border-bottom: 1px solid var(--line); text-align: right }
th:first-child, td:first-child { text-align: left }
"""
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title><style>{style}</style></head><body><main>
<h1>{title}</h1>
{body}
</main></body></html>
"""


class Curve(NamedTuple):
    """Points (comparisons, share) with a name. A flat curve is a dashed line over the whole width."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: str
    flat: bool = False


def page(name: str, models: Sequence[ReplayedModel], fitted: int) -> str:
    """The page of a replay of the model ``name``. ``fitted`` is the number of events that the start was fitted on."""
    fitted_text = f", from a start fitted on the first {fitted:,} events" if fitted else ""
    body = [f'<p class="soft">The log was learned again from its beginning{fitted_text}.</p>']
    names = {id(model): escaped(model.learner.name) for model in models}
    colours = {id(model): COLOURS[number % len(COLOURS)] for number, model in enumerate(models)}
    along = [(model, model.orders_along()) for model in models]
    held_out = [
        Curve(names[id(model)], [(count, order.right) for count, order in points], colours[id(model)])
        for model, points in along if points
    ]  # fmt: skip
    plain = next((orders[0] for model in models if (orders := model.orders())), None)
    if plain and held_out:
        ends = ", ".join(f"{curve.name} {curve.points[-1][1]:.1%}" for curve in held_out)
        unlearned = f"{amount(plain.events, 'event')} that nobody learned from"
        introduction = f"Of {unlearned}, the plain distance, which learns nothing, orders"
        body += [
            "<h2>Held-out events in the right order</h2>",
            f"<p>{introduction} {plain.right:.1%} rightly; at the end of the log: {ends}.</p>",
            chart("Share of held-out events in the right order, by comparisons learned",
                  [*held_out, Curve("plain distance", [(0, plain.right)], "currentColor", flat=True)]),
        ]  # fmt: skip
    mistakes = [
        Curve(names[id(model)], in_stretches(model.curve), colours[id(model)]) for model in models if model.curve
    ]
    if mistakes:
        body += [
            "<h2>Mistakes before learning</h2>",
            "<p>Each comparison is answered, then learned. A point shows the share of wrong answers in a stretch.</p>",
            chart("Share of comparisons answered wrongly, by comparisons learned", mistakes),
        ]
    body.append(table(models))
    body += [f"<p>{escaped(line)}</p>" for line in map(refusals, models) if line]
    return PAGE.format(title=f"Replay of {escaped(name)}", style=STYLE, body="\n".join(body))


def in_stretches(curve: Sequence[CurvePoint]) -> list[tuple[float, float]]:
    """The share of mistakes in each stretch."""
    before, points = CurvePoint(0, 0, 0.0), []
    for stretch in curve:
        count = stretch.comparisons - before.comparisons
        points.append((float(stretch.comparisons), (stretch.mistakes - before.mistakes) / count))
        before = stretch
    return points


def chart(label: str, curves: Sequence[Curve]) -> str:
    """A chart of curves over the number of comparisons, on a logarithmic axis with 0 at the left edge."""
    shares = [share for curve in curves for _, share in curve.points]
    counts = sorted({count for curve in curves for count, _ in curve.points if count > 0}) or [1.0]
    low, high = math.floor(10 * min(shares)) / 10, math.ceil(10 * max(shares)) / 10
    high = max(high, low + 0.1)
    begin, end = math.log10(counts[0]) - 0.3, math.log10(counts[-1])

    def x(count: float) -> float:
        place = (math.log10(count) - begin) / (end - begin) if count > 0 else 0.0
        return LEFT + place * (WIDTH - LEFT - RIGHT)

    def y(share: float) -> float:
        return TOP + (high - share) / (high - low) * (HEIGHT - TOP - BOTTOM)

    step = 0.1 if high - low > 0.25 else 0.05
    shares_at = [low + number * step for number in range(round((high - low) / step) + 1)]
    powers = range(math.floor(begin), math.ceil(end) + 1)
    counts_at = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
    counts_at = [count for count in counts_at if begin <= math.log10(count) <= end]
    parts = [
        f'<div tabindex="0"><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">',
        *axes(shares_at, counts_at, x, y),
    ]
    for curve, height in zip(curves, apart([y(curve.points[-1][1]) for curve in curves]), strict=True):
        parts += drawn(curve, x, y)
        dashes = ' stroke-dasharray="3 2"' if curve.flat else ""
        place = f'x1="{WIDTH - RIGHT + 8}" x2="{WIDTH - RIGHT + 22}" y1="{height:.1f}" y2="{height:.1f}"'
        parts.append(f'<line {place} stroke="{curve.colour}" stroke-width="3"{dashes}/>')
        parts.append(f'<text class="name" x="{WIDTH - RIGHT + 28}" y="{height + 4:.1f}">{curve.name}</text>')
    return "\n".join([*parts, "</svg></div>"])


def axes(
    shares: Sequence[float], counts: Sequence[float], x: Callable[[float], float], y: Callable[[float], float]
) -> list[str]:
    """Lines and labels at these shares, and at those of these counts that do not come too near to each other."""
    parts = []
    for share in shares:
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(share):.1f}" y2="{y(share):.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(share) + 4:.1f}" text-anchor="end">{share:.0%}</text>')
    last = -math.inf
    for count in counts:
        place = x(count)
        if place - last >= TICK:
            last = place
            parts.append(f'<line class="grid" x1="{place:.1f}" x2="{place:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
            parts.append(f'<text x="{place:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{count:,.0f}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    return [*parts, f'<text x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">comparisons learned</text>']


def drawn(curve: Curve, x: Callable[[float], float], y: Callable[[float], float]) -> list[str]:
    """A curve as SVG: a line, and a dot with a tooltip for each point."""
    if curve.flat:
        label_y = f"{y(curve.points[0][1]):.1f}"
        dashes = f'stroke="{curve.colour}" stroke-dasharray="6 4" stroke-width="1.5"'
        return [f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{label_y}" y2="{label_y}" {dashes}/>']
    places = [(f"{x(count):.1f}", f"{y(share):.1f}", count, share) for count, share in curve.points]
    line = " ".join(f"{left},{top}" for left, top, *_ in places)
    parts = [f'<polyline points="{line}" fill="none" stroke="{curve.colour}" stroke-width="2"/>']
    parts += [
        f'<circle cx="{left}" cy="{top}" r="3.5" fill="{curve.colour}"><title>{curve.name}: {share:.1%} after '
        f"{count:,.0f}</title></circle>"
        for left, top, count, share in places
    ]
    return parts


def apart(heights: Sequence[float], room: float = 16.0) -> list[float]:
    """The same heights, moved down as far as needed so that names do not overlap."""
    placed: dict[int, float] = {}
    for number in sorted(range(len(heights)), key=lambda place: heights[place]):
        placed[number] = max([heights[number], *(height + room for height in placed.values())])
    return [placed[number] for number in range(len(heights))]


def table(models: Sequence[ReplayedModel]) -> str:
    """The figures behind the curves as an HTML table, as the terminal shows them."""
    rows = []
    for model in models:
        shares = in_stretches(model.curve)
        for stretch, (_, here) in zip(model.curve, shares, strict=True):
            figures = stretch.comparisons, stretch.mistakes / stretch.comparisons, here, stretch.seconds
            cells = escaped(model.learner.name), *map(str.format, ("{:,}", "{:.2%}", "{:.2%}", "{:.2f}"), figures)
            rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    head = "".join(f"<th>{name}</th>" for name in ("learner", "comparisons", "mistakes", "in this stretch", "seconds"))
    return f'<h2>Figures</h2>\n<div tabindex="0"><table><tr>{head}</tr>\n' + "\n".join(rows) + "\n</table></div>"


def escaped(text: str) -> str:
    """A name that somebody else chose, escaped for HTML and without control characters."""
    return escape(visible(text))
