"""The samples of a soak as an SVG: a panel for each of memory, files and threads, a line for each process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from tests.fault.soak.samples import SHOWN, Sample

WIDTH, PANEL, LEFT, RIGHT, TOP, GAP = 900, 150, 60, 110, 30, 45
# Okabe and Ito's, which people who see few colours can tell apart.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00")


def drawn(samples: Mapping[str, Sequence[Sample]], title: str) -> str:
    """The picture; a line is broken at each restart of its process."""
    height = TOP + len(SHOWN) * (PANEL + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}">',
        "<style>text { font: 12px sans-serif }</style>",
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LEFT}" y="18">{escape(title)}</text>',
    ]
    end = max(entry.at for some in samples.values() for entry in some)
    for number, (quantity, field) in enumerate(SHOWN):
        top = TOP + number * (PANEL + GAP) + 15
        most = max(getattr(sample, field) for some in samples.values() for sample in some) * 1.1
        parts += _frame(top, quantity, most, end)
        for line, (name, some) in enumerate(samples.items()):
            colour = COLOURS[line % len(COLOURS)]
            for pid in dict.fromkeys(sample.pid for sample in some):
                points = " ".join(
                    f"{LEFT + sample.at / end * (WIDTH - LEFT - RIGHT):.1f},"
                    f"{top + PANEL - getattr(sample, field) / most * PANEL:.1f}"
                    for sample in some
                    if sample.pid == pid
                )
                parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
            legend = f'x="{WIDTH - RIGHT + 10}" y="{top + 12 + 16 * line}" fill="{colour}"'
            parts.append(f"<text {legend}>{escape(name)}</text>")
    return "\n".join([*parts, "</svg>\n"])


def _frame(top: int, quantity: str, most: float, end: float) -> list[str]:
    right, bottom = WIDTH - RIGHT, top + PANEL
    return [
        f'<text x="{LEFT}" y="{top - 5}">{escape(quantity)}</text>',
        f'<path d="M{LEFT} {top}V{bottom}H{right}" fill="none" stroke="#555"/>',
        *(
            f'<text x="{LEFT - 6}" y="{bottom - share * PANEL + 4:g}" text-anchor="end">{share * most:.0f}</text>'
            for share in (0, 0.5, 1)
        ),
        *(
            f'<text x="{LEFT + share * (right - LEFT):g}" y="{bottom + 15}" text-anchor="middle">'
            f"{share * end / 60:.1f} min</text>"
            for share in (0, 0.5, 1)
        ),
    ]
