"""Points of a sweep: quality over cost, and over one setting. Drawn as plots.py draws."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator
from matplotlib.transforms import Bbox

from seq2sweep.report import names
from seq2sweep.report.plots import MUTED, SERIES, STYLE, SURFACE, svg
from seq2sweep.report.text import powers


@dataclass(frozen=True)
class Point:
    """One variant; a hollow mark was stopped early; margin: of y, half its 95 % interval."""

    label: str
    x: float
    y: float
    margin: float | None = None
    hollow: bool = False
    base: bool = False


@dataclass(frozen=True)
class Axis:
    """Its label, whether more is better, and whether its values may differ by powers of ten."""

    label: str
    higher: bool
    powers: bool = False


def scatter(points: Sequence[Point], x: Axis, y: Axis, *, about: str, name: str) -> str:
    """Named points over two objectives, and the line of those that no other beats in both.

    No name covers a point, another name or that line; intervals would only hide each other here.
    """
    with matplotlib.rc_context(STYLE):
        height = 4.6 + 0.1 * max(0, len(points) - 10)
        figure = Figure(figsize=(9.0, height), layout="constrained")
        axes = figure.subplots()
        front = pareto([point for point in points if not point.hollow], x.higher, y.higher)
        if len(front) > 1:
            corners = [point.x for point in front], [point.y for point in front]
            axes.plot(*corners, drawstyle="steps-post", color=MUTED, linewidth=1, dashes=(4, 3))
        for number, point in enumerate(points):
            _mark(axes, point, SERIES[number % len(SERIES)], bar=False)
        _x_axis(axes, [point.x for point in points], x.powers)
        axes.margins(y=0.15)
        axes.set_xlabel(x.label)
        axes.set_ylabel(y.label)
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        _name_points(axes, points, front)
        return svg(figure, about, name)


def pareto(points: Sequence[Point], x_higher: bool, y_higher: bool) -> list[Point]:
    """Those that no other reaches in y at the same or a better x, best x first.

    x_higher, y_higher: whether more is better. Of equal points the first is taken.
    """
    x_sign, y_sign = (1 if higher else -1 for higher in (x_higher, y_higher))
    front: list[Point] = []
    for point in sorted(points, key=lambda point: (-x_sign * point.x, -y_sign * point.y)):
        if not front or y_sign * point.y > y_sign * front[-1].y:
            front.append(point)
    return front


def effect(
    points: Sequence[Point], *, about: str, x_label: str, y_label: str, name: str, doubling: bool
) -> str:
    """A small chart of quality over one setting, and the base's level; `doubling` settings (heads,
    widths) are spaced by their logarithm."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(3.6, 2.6), layout="constrained")
        axes = figure.subplots()
        ordered = sorted(points, key=lambda point: point.x)
        x = [point.x for point in ordered]
        axes.plot(x, [point.y for point in ordered], color=SERIES[0], linewidth=1.2)
        for point in ordered:
            _mark(axes, point, SERIES[1] if point.base else SERIES[0])
            if point.base:
                axes.axhline(point.y, color=SERIES[1], linewidth=0.8, dashes=(4, 3), zorder=1)
        if doubling:
            axes.set_xscale("log")
            axes.xaxis.set_minor_locator(NullLocator())
        if len(set(x)) <= 8:
            axes.xaxis.set_major_locator(FixedLocator(sorted(set(x))))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.grid(axis="x", visible=False)
        axes.margins(0.08, 0.15)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        return svg(figure, about, name)


# --- parts ---------------------------------------------------------------------------------------


def _mark(axes: Any, point: Point, colour: str, bar: bool = True) -> None:
    if bar and point.margin is not None:
        axes.errorbar(
            [point.x],
            [point.y],
            yerr=[point.margin],
            color=colour,
            linewidth=1,
            capsize=3,
            zorder=2,
        )
    axes.plot(
        [point.x],
        [point.y],
        "D" if point.base else "o",
        markersize=9 if point.base else 7,
        zorder=4 if point.base else 3,
        color=colour,
        markerfacecolor=SURFACE if point.hollow else colour,
        # A rim in the page's colour keeps marks apart that lie on one another.
        markeredgecolor=colour if point.hollow else SURFACE,
        markeredgewidth=1.6 if point.hollow else 0.8,
    )


def _x_axis(axes: Any, values: Sequence[float], in_powers: bool) -> None:
    """Logarithmic where costs differ much; more room at the right, where names prefer to stand."""
    low, high = min(values), max(values)
    if in_powers and high > 4 * low:
        axes.set_xscale("log")
        margin = (high / low) ** 0.12
        axes.set_xlim(low / margin, high * margin**2)
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 1e4 * low else (1,)))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        margin = 0.12 * (high - low) or 0.2 * high
        axes.set_xlim(low - margin, high + 2 * margin)
        axes.xaxis.set_major_locator(MaxNLocator(5))
    if in_powers:
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: powers(value)))


def _name_points(axes: Any, points: Sequence[Point], front: Sequence[Point]) -> None:
    """Each name in its point's colour at a free place around it, with a line when not beside it."""
    renderer = FigureCanvasAgg(axes.figure).get_renderer()
    frame = axes.get_window_extent(renderer)
    centres = [axes.transData.transform((point.x, point.y)) for point in points]
    # Wider than a mark: a name right beside another's mark would seem to belong to that one.
    marks = [Bbox.from_bounds(x - 13, y - 7, 26, 14) for x, y in centres]
    taken = _steps(axes, front)
    for number, (point, centre) in enumerate(zip(points, centres, strict=True)):
        colour = SERIES[number % len(SERIES)]
        text = axes.annotate(
            names.short(point.label),
            (point.x, point.y),
            xytext=(0, 0),
            textcoords="offset points",
            va="center",
            ha="center",
            color=colour,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.7, "shrinkB": 4},
        )
        extent = text.get_window_extent(renderer)
        width, height = extent.width, extent.height
        others = marks[:number] + marks[number + 1 :]
        x, y = names.place(centre, width, height, [*taken, *others], frame)
        text.set_position((x - centre[0], y - centre[1]))
        gap = (abs(x - centre[0]) - width / 2, abs(y - centre[1]) - height / 2)
        text.arrow_patch.set_visible(math.hypot(max(gap[0], 0), max(gap[1], 0)) > 12)
        taken.append(Bbox.from_bounds(x - width / 2, y - height / 2, width, height))


def _steps(axes: Any, front: Sequence[Point]) -> list[Bbox]:
    """Boxes, in pixels, around the horizontal and vertical parts of the front's line."""
    corners = [axes.transData.transform((point.x, point.y)) for point in front]
    boxes = []
    for (x, y), (next_x, next_y) in itertools.pairwise(corners):
        boxes.append(Bbox([[x, y - 2], [next_x, y + 2]]))
        boxes.append(Bbox([[next_x - 2, y], [next_x + 2, next_y]]))
    return boxes
