"""One layer's attention as a figure for a paper: SVG in the shape of the paper's figures 3 to 5."""

from __future__ import annotations

import re
from collections.abc import Sequence

from markupsafe import escape

from seq2sweep.evaluate.attention.attention_maps import Maps
from seq2sweep.report.trees.tree_layout import SIZE, text_width

ROW, COLUMN, MARGIN = 18, 170, 12
FAINTEST = 0.02
"""Weights below this are not drawn."""
COLOURS = (
    *("#2563a8", "#c2581b", "#2b8057", "#7a4fa3"),
    *("#a8323e", "#0d7f8c", "#8a6a10", "#5a6472"),
)
"""Of heads, in turns."""
UNPRINTABLE = re.compile("[^\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
REPLACEMENT = "\ufffd"
"""Instead of what XML may not hold."""


def draw(
    maps: Maps, layer: str, heads: Sequence[int], row: int | None = None, *, words: bool = True
) -> str:
    """Two columns: on the left the rows, on the right what they attend to; a line's opacity is the
    weight, its colour the head. heads: from 0; row: draw the lines of this one alone."""
    weights = maps.by_word(layer) if words else maps.weights[layer]
    sides = [(maps.texts(side) if words else side) for side in (maps.rows(layer), maps.keys(layer))]
    left, right = (max(map(text_width, side)) + MARGIN for side in sides)
    height = ROW * max(map(len, sides)) + MARGIN
    width = left + COLUMN + right
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
        f'viewBox="0 0 {width:.0f} {height}" font-family="sans-serif" font-size="{SIZE:.0f}">'
    ]
    for head in heads:
        for i, weights_of in enumerate(weights[head]):
            if row is not None and i != row:
                continue
            for j, weight in enumerate(weights_of):
                if weight >= FAINTEST:
                    lines.append(
                        f'<line x1="{left:.0f}" y1="{_at(i)}" x2="{left + COLUMN:.0f}" '
                        f'y2="{_at(j)}" stroke="{COLOURS[head % len(COLOURS)]}" stroke-width="2" '
                        f'stroke-opacity="{weight:.3f}"/>'
                    )
    for side, x, anchor in ((sides[0], left - 6, "end"), (sides[1], left + COLUMN + 6, "start")):
        lines += [
            f'<text x="{x:.0f}" y="{_at(i) + SIZE / 3:.1f}" text-anchor="{anchor}">'
            f"{escape(UNPRINTABLE.sub(REPLACEMENT, text))}</text>"
            for i, text in enumerate(side)
        ]
    return "\n".join([*lines, "</svg>", ""])


def _at(place: int) -> int:
    return ROW * place + ROW // 2 + MARGIN // 2
