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
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from seq2sweep.report import names

# Placeholder colours; no other colour may appear in a figure.
INK, MUTED, LINE, SURFACE = "#010101", "#010102", "#010103", "#010104"
SERIES = [f"#0102{number:02x}" for number in range(1, 9)]
_VARIABLES = {INK: "--ink", MUTED: "--muted", LINE: "--line", SURFACE: "--surface"} | {
    colour: f"--series-{number}" for number, colour in enumerate(SERIES, start=1)
}

STYLE = {
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
_DASHES: list[Any] = ["-", (0, (5, 2)), (0, (1.5, 1.5))]


@dataclass(frozen=True)
class Curve:
    """Points (x, y) of one line."""

    label: str
    points: Sequence[tuple[float, float]]
    stopped: bool = False


def lines(
    curves: Sequence[Curve], *, about: str, x_label: str, name: str, y_from_zero: bool = False
) -> str:
    """A small chart of one or a few lines with a legend; `name` is unique on the page."""
    with matplotlib.rc_context(STYLE):
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
        return svg(figure, about, name)


def labelled_lines(curves: Sequence[Curve], *, about: str, x_label: str, name: str) -> str:
    """Many lines, each named at its right end; names are moved apart where they would collide."""
    with matplotlib.rc_context(STYLE):
        line_height = 12.5
        height = max(3.6, (len(curves) + 3) * line_height / 72)
        figure = Figure(figsize=(9.0, height))
        # Room on the right for the longest name, at most a third of the width.
        labels = [names.short(curve.label) for curve in curves]
        share = 0.03 + max(map(len, labels)) * 0.0085
        axes = figure.add_axes((0.06, 0.42 / height, 0.93 - share, 1 - 0.55 / height))
        ends = []
        for number, curve in enumerate(curves):
            colour = SERIES[number % len(SERIES)]
            x, y = zip(*curve.points, strict=True)
            axes.plot(x, y, color=colour, linestyle=_DASHES[number // len(SERIES) % len(_DASHES)])
            face = SURFACE if curve.stopped else colour
            axes.plot(x[-1:], y[-1:], "o", markersize=5, color=colour, markerfacecolor=face)
            ends.append((x[-1], y[-1], colour, labels[number]))
        axes.set_ylim(*_loss_range(curves))
        _step_axis(axes, x_label)
        _name_ends(axes, ends, line_height)
        return svg(figure, about, name)


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


def _name_ends(axes: Any, ends: Sequence[tuple[float, float, str, str]], height: float) -> None:
    """Names right of the plot, level with their lines' ends but at least `height` pixels apart."""
    right = axes.bbox.x1
    wanted = sorted(
        (axes.transData.transform((x, y))[1], number) for number, (x, y, *_) in enumerate(ends)
    )
    placed = names.spread([y for y, _ in wanted], height, axes.bbox.y0, axes.bbox.y1)
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


# --- SVG -----------------------------------------------------------------------------------------


def svg(figure: Figure, about: str, name: str) -> str:
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
