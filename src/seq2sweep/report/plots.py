"""Figures as inline SVG that takes its colours and fonts from the page around it.

matplotlib draws with placeholder colours that become CSS variables (`--ink`, `--series-1`, ...),
so one drawing suits a light and a dark page. The same data give the same bytes.
"""

from __future__ import annotations

import io
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, MaxNLocator, NullLocator
from matplotlib.transforms import Bbox

from seq2sweep.report.text import powers

# Placeholder colours; no other colour may appear in a figure.
INK, MUTED, LINE, SURFACE = "#010101", "#010102", "#010103", "#010104"
SERIES = [f"#0102{number:02x}" for number in range(1, 9)]
_VARIABLES = {INK: "--ink", MUTED: "--muted", LINE: "--line", SURFACE: "--surface"} | {
    colour: f"--series-{number}" for number, colour in enumerate(SERIES, start=1)
}

_STYLE = {
    "svg.hashsalt": "seq2sweep",
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": LINE,
    "axes.facecolor": "none",
    "axes.labelcolor": MUTED,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "ytick.major.size": 0,
    "lines.linewidth": 1.6,
    "legend.frameon": False,
    "figure.dpi": 72,  # points are pixels
}
_LONGEST_NAME = 36  # characters of a trial's name that fit beside a plot
_DASHES: list[Any] = ["-", (0, (5, 2)), (0, (1.5, 1.5))]


@dataclass(frozen=True)
class Curve:
    """Points (x, y) of one line."""

    label: str
    points: Sequence[tuple[float, float]]
    stopped: bool = False


@dataclass(frozen=True)
class Point:
    """One trial of the scatter; a hollow mark was stopped early."""

    label: str
    x: float
    y: float
    hollow: bool = False
    base: bool = False


def lines(
    curves: Sequence[Curve], *, about: str, x_label: str, name: str, y_from_zero: bool = False
) -> str:
    """A small chart of one or a few lines with a legend; `name` is unique on the page."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(5.0, 2.6), layout="constrained")
        axes = figure.subplots()
        for curve, colour in zip(curves, itertools.cycle(SERIES)):
            x, y = zip(*curve.points, strict=True)
            # A line of one point would be invisible.
            mark: dict[str, Any] = {"marker": "o", "markersize": 4} if len(x) < 12 else {}
            axes.plot(x, y, color=colour, label=curve.label, **mark)
        if y_from_zero:
            axes.set_ylim(bottom=0)
        if len(curves) > 1:
            axes.legend(labelcolor=INK)
        _step_axis(axes, x_label)
        return _svg(figure, about, name)


def labelled_lines(curves: Sequence[Curve], *, about: str, x_label: str, name: str) -> str:
    """Many lines, each named at its right end; names are moved apart where they would collide."""
    with matplotlib.rc_context(_STYLE):
        line_height = 12.5
        height = max(3.6, (len(curves) + 3) * line_height / 72)
        figure = Figure(figsize=(9.0, height))
        # Room on the right for the longest name, at most a third of the width.
        names = [_short(curve.label) for curve in curves]
        share = 0.03 + max(map(len, names)) * 0.0085
        axes = figure.add_axes((0.06, 0.42 / height, 0.93 - share, 1 - 0.55 / height))
        ends = []
        for number, curve in enumerate(curves):
            colour = SERIES[number % len(SERIES)]
            x, y = zip(*curve.points, strict=True)
            axes.plot(x, y, color=colour, linestyle=_DASHES[number // len(SERIES) % len(_DASHES)])
            face = SURFACE if curve.stopped else colour
            axes.plot(x[-1:], y[-1:], "o", markersize=5, color=colour, markerfacecolor=face)
            ends.append((x[-1], y[-1], colour, names[number]))
        axes.set_ylim(*_loss_range(curves))
        _step_axis(axes, x_label)
        _name_ends(axes, ends, line_height)
        return _svg(figure, about, name)


def scatter(points: Sequence[Point], *, about: str, x_label: str, y_label: str, name: str) -> str:
    """Named points, quality over cost; no name covers a point or another name."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(9.0, 4.6), layout="constrained")
        axes = figure.subplots()
        for number, point in enumerate(points):
            colour = SERIES[number % len(SERIES)]
            axes.plot(
                [point.x],
                [point.y],
                "D" if point.base else "o",
                markersize=9 if point.base else 7,
                zorder=3 if point.base else 2,
                color=colour,
                markerfacecolor=SURFACE if point.hollow else colour,
                # A rim in the page's colour keeps marks apart that lie on one another.
                markeredgecolor=colour if point.hollow else SURFACE,
                markeredgewidth=1.6 if point.hollow else 0.8,
            )
        _cost_axis(axes, [point.x for point in points])
        axes.margins(y=0.15)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        _name_points(axes, points)
        return _svg(figure, about, name)


# --- axes ----------------------------------------------------------------------------------------


def _step_axis(axes: Any, label: str) -> None:
    axes.grid(axis="x", visible=False)
    axes.set_xlim(left=0)
    axes.set_xlabel(label)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    if axes.get_ylim()[1] >= 10_000:
        axes.yaxis.set_major_formatter(EngFormatter(sep=""))


def _loss_range(curves: Sequence[Curve]) -> tuple[float, float]:
    """From just under the best value to the highest one after the first fifth of a curve.

    The losses of models hardly trained would press the ends of all curves together.
    """
    low = min(y for curve in curves for _, y in curve.points)
    high = max(
        max(y for _, y in curve.points[min(len(curve.points) - 1, 1 + len(curve.points) // 5) :])
        for curve in curves
    )
    margin = 0.06 * (high - low) or 0.5
    return low - margin, high + margin


def _cost_axis(axes: Any, values: Sequence[float]) -> None:
    """Logarithmic where costs differ much; more room at the right, where names prefer to stand."""
    low, high = min(values), max(values)
    if high > 4 * low:
        axes.set_xscale("log")
        margin = (high / low) ** 0.12
        axes.set_xlim(low / margin, high * margin**2)
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 1e4 * low else (1,)))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        margin = 0.12 * (high - low) or 0.2 * high
        axes.set_xlim(low - margin, high + 2 * margin)
        axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: powers(value)))


# --- names that do not overlap -------------------------------------------------------------------


def _name_ends(axes: Any, ends: Sequence[tuple[float, float, str, str]], height: float) -> None:
    """Names right of the plot, level with their lines' ends but at least `height` pixels apart."""
    right = axes.bbox.x1
    wanted = sorted(
        (axes.transData.transform((x, y))[1], number) for number, (x, y, *_) in enumerate(ends)
    )
    placed = spread([y for y, _ in wanted], height, axes.bbox.y0, axes.bbox.y1)
    for (_, number), level in zip(wanted, placed, strict=True):
        x, y, colour, label = ends[number]
        axes.annotate(
            label,
            (x, y),
            xytext=(right + 22, level),
            textcoords="figure pixels",
            va="center",
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": colour,
                "linewidth": 0.6,
                "shrinkA": 2,
                "shrinkB": 3,
                "relpos": (0, 0.5),
            },
        )


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


def _name_points(axes: Any, points: Sequence[Point]) -> None:
    """Each name in its point's colour at a free place around it, with a line when not beside it."""
    renderer = FigureCanvasAgg(axes.figure).get_renderer()
    frame = axes.get_window_extent(renderer)
    centres = [axes.transData.transform((point.x, point.y)) for point in points]
    # Wider than a mark: a name right beside another's mark would seem to belong to that one.
    marks = [Bbox.from_bounds(x - 13, y - 7, 26, 14) for x, y in centres]
    names: list[Bbox] = []
    for number, (point, centre) in enumerate(zip(points, centres, strict=True)):
        colour = SERIES[number % len(SERIES)]
        text = axes.annotate(
            _short(point.label),
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
        x, y = place(centre, width, height, [*names, *others], frame)
        text.set_position((x - centre[0], y - centre[1]))
        gap = (abs(x - centre[0]) - width / 2, abs(y - centre[1]) - height / 2)
        text.arrow_patch.set_visible(math.hypot(max(gap[0], 0), max(gap[1], 0)) > 12)
        names.append(Bbox.from_bounds(x - width / 2, y - height / 2, width, height))


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


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"


# --- SVG -----------------------------------------------------------------------------------------


def _svg(figure: Figure, about: str, name: str) -> str:
    """The drawing as an <svg> element without a fixed size, identifiers prefixed by `name`."""
    stream = io.StringIO()
    figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = (
        re.sub(r'\s(?:xmlns(?::\w+)?|version|width|height)="[^"]*"', "", text.partition(">")[0])
        + (text[text.index(">") :])
    )
    text = text.replace("xlink:href", "href")
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r'(url\(|href=")#', rf"\1#{name}-", text)
    for placeholder, variable in _VARIABLES.items():
        text = text.replace(placeholder, f"var({variable})")
    label = about.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    return text.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)


def series_of(rows: Sequence[Mapping[str, float | None]], column: str) -> list[tuple[float, float]]:
    """(step, value) of one column of metrics/curves.csv, where it was measured and finite."""
    return [
        (step, value)
        for row in rows
        if (value := row.get(column)) is not None
        and (step := row.get("step")) is not None
        and math.isfinite(value)
    ]
