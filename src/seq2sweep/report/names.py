"""Places for the names of points and lines in a figure, so that none covers another."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.transforms import Bbox

_LONGEST = 36  # characters of a trial's name that fit beside a plot


def short(name: str) -> str:
    return name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…"


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Ascending positions near the ascending wanted ones, each at least `gap` after the last.

    Kept within low..high where there is room for all.
    """
    placed: list[float] = []
    for value in wanted:
        placed.append(max(value, placed[-1] + gap) if placed else max(value, low))
    limit = max(high, low + gap * (len(placed) - 1))
    for number in reversed(range(len(placed))):
        placed[number] = min(placed[number], limit)
        limit = placed[number] - gap
    return placed


def place(
    centre: tuple[float, float], width: float, height: float, taken: Sequence[Bbox], frame: Bbox
) -> tuple[float, float]:
    """Centre of a free box of this size near a point: nearest ring first, right side first.

    All in pixels. Where everything is taken, directly right of the point.
    """
    reach = width / 2 + 8
    for ring in range(0, 240, 10):
        for angle in (0, 180, 20, 160, 340, 200, 45, 135, 315, 225, 70, 110, 290, 250):
            x = centre[0] + math.cos(math.radians(angle)) * (reach + 1.5 * ring)
            y = centre[1] + math.sin(math.radians(angle)) * (height + ring)
            box = Bbox.from_bounds(x - width / 2, y - height / 2, width, height)
            inside = frame.x0 <= box.x0 and box.x1 <= frame.x1
            inside = inside and frame.y0 <= box.y0 and box.y1 <= frame.y1
            if inside and not any(box.overlaps(other) for other in taken):
                return x, y
    return centre[0] + reach, centre[1]
