"""The plots of a sweep, from its variants; None where there is nothing to draw."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import matplotlib
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.path import Path
from matplotlib.ticker import FuncFormatter, LogLocator
from numpy.typing import NDArray

from seq2sweep.report.aggregate import Variant
from seq2sweep.report.number_format import plain, powers
from seq2sweep.report.paper import changed_settings, kind_of_change
from seq2sweep.report.pareto import Objective, front
from seq2sweep.report.plots import MUTED, SERIES, STYLE, SURFACE, step_axis, svg

# Groups of Table 3, and the setting that each varies.
_EFFECTS = (("A", "heads"), ("B", "d_k"), ("D", "dropout"))
_DASHES: list[Any] = ["-", (0, (5, 2)), (0, (1.5, 1.5))]
_LONGEST = 36  # characters of a trial's name that fit beside a plot
_MOST_NAMES = 60  # of a scatter plot; of more variants only base and the front are named
_MOST_CURVES = 40  # with a name; of more variants only those that end lowest, and base


def objectives(
    variants: Sequence[Variant], sought: Sequence[Objective], equal_flops: bool = False
) -> dict[str, str] | None:
    """Heading, drawing and caption of one objective over another, with their Pareto front.

    Of a search for two it is these; else the score over training FLOPs, or where all have equal
    ones over parameters, and no front.
    """
    by_size = equal_flops and len(sought) != 2
    usual = [Objective("parameters" if by_size else "flops", False)]
    usual.append(Objective(variants[0].score.name, True))
    pair = sought if len(sought) == 2 else usual
    y, x = sorted(pair, key=lambda objective: objective.is_cost)
    shown = [
        variant
        for variant in variants
        if (value := variant.mean(x.figure)) is not None
        # What nothing was spent on has shown nothing.
        and (value > 0 or not x.is_cost)
        and variant.mean(y.figure) is not None
    ]
    if not shown:
        return None
    best = front(shown, [y] if by_size else pair)
    named = f" ({', '.join(variant.label for variant in best)})" if sought else ""
    caption = (
        f"{'Up' if y.higher else 'Down'} is better, {'right' if x.higher else 'left'} "
        f"is {'cheaper' if x.is_cost else 'better'}; dashed: the Pareto front, of what nothing "
        f"beats in both{named}."
    )
    title = "Quality against cost" if x.is_cost else f"{y.name} against {x.name}"
    if by_size:
        title = "Quality against size"
        caption = "Up is better; all were trained for equal FLOPs, so that none was cheaper."
    if len(shown) > _MOST_NAMES:
        others = "the best" if by_size else "that front"
        caption += f" Of {len(shown):,} variants only base and {others} are named."
    return {"title": title, "svg": _scatter(shown, best, x, y), "caption": caption}


@matplotlib.rc_context(STYLE)
def _scatter(
    variants: Sequence[Variant], best: Sequence[Variant], x: Objective, y: Objective
) -> Markup:
    """Named points, and the line of the front; no name covers a point, a name or that line.

    Beyond `_MOST_NAMES` variants only base and the front are named.
    """
    figure = Figure(figsize=(9.0, 4.6 + 0.1 * (min(max(len(variants), 10), _MOST_NAMES) - 10)))
    axes = figure.subplots()
    names = [(_short(variant.label), _place(variant, x, y)) for variant in variants]
    for variant, (_, place), colour in zip(variants, names, itertools.cycle(SERIES)):
        _mark(axes, variant, place, colour)
    reached = sorted((_place(variant, x, y) for variant in best), reverse=x.higher)
    # From each to the next: along its level first, then up or down.
    line = [
        corner
        for (x1, y1), (x2, y2) in itertools.pairwise(reached)
        for corner in ((x1, y1), (x2, y1), (x2, y2))
    ]
    if line:
        axes.plot(*zip(*line, strict=True), color=MUTED, linewidth=1, dashes=(4, 3), zorder=1)
    axes.margins(x=0.12, y=0.15)
    axes.set_xlabel(x.axis)
    axes.set_ylabel(y.axis)
    axes.locator_params("x", nbins=5)
    if x.is_cost:
        costs = [place[0] for _, place in names]
        if max(costs) > 4 * min(costs):
            axes.set_xscale("log")
            axes.minorticks_off()
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: powers(value)))
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    few = len(variants) <= _MOST_NAMES
    named = [few or variant.is_base or variant in best for variant in variants]
    _name_points(axes, names, line, named)
    return svg(figure, f"{y.name} of each variant against its {x.name}", "scatter")


def _name_points(
    axes: Axes,
    names: Sequence[tuple[str, tuple[float, float]]],
    line: Sequence[tuple[float, float]],
    named: Sequence[bool],
) -> None:
    """Each name at the nearest free place around its point, with a line to it from further away.

    Where everything is taken, right of the point. line: is not to be covered, nor is any point;
    named: which points are.
    """
    renderer = FigureCanvasAgg(axes.figure).get_renderer()
    centres = axes.transData.transform([place for _, place in names])
    # Wider than a mark: a name right beside another's mark would seem to belong to that one.
    size = np.array([13, 7])
    boxes = np.hstack([centres - size, centres + size])  # x0, y0, x1, y1: marks, then names
    path = Path(axes.transData.transform(line)) if line else None
    for number, ((name, place), colour) in enumerate(zip(names, itertools.cycle(SERIES))):
        if not named[number]:
            continue
        text = axes.annotate(
            name,
            place,
            (0, 0),
            textcoords="offset points",
            va="center",
            ha="center",
            color=colour,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.7, "shrinkB": 7},
        )
        extent = text.get_window_extent(renderer)
        others = np.delete(boxes, number, axis=0)
        offsets = list(_offsets(extent.width, extent.height))
        for offset in [*offsets, offsets[0]]:
            box = extent.translated(*offset)
            inside = axes.bbox.contains(*box.min) and axes.bbox.contains(*box.max)
            over_line = path is not None and path.intersects_bbox(box, filled=False)
            if inside and not over_line and not _overlaps(np.array(box.extents), others):
                break
        text.set_position(offset)
        boxes = np.vstack([boxes, box.extents])


def _overlaps(box: NDArray[np.float64], others: NDArray[np.float64]) -> bool:
    """Whether a box, as x0, y0, x1, y1, has area in common with one of the others [boxes, 4]."""
    return bool(((others[:, :2] < box[2:]) & (others[:, 2:] > box[:2])).all(axis=1).any())


def _offsets(width: float, height: float) -> Iterator[tuple[float, float]]:
    """Centres of a name of this size around its point, in pixels: nearest ring first."""
    for ring in range(0, 240, 10):
        for angle in (0, 180, 20, 160, 340, 200, 45, 135, 315, 225, 70, 110, 290, 250):
            yield (
                math.cos(math.radians(angle)) * (width / 2 + 8 + 1.5 * ring),
                math.sin(math.radians(angle)) * (height + ring),
            )


def effects(variants: Sequence[Variant]) -> list[dict[str, str]]:
    """Title and drawing for each setting that variants change alone; base's point is in each."""
    base = variants[0]
    result = []
    for group, setting in _EFFECTS:
        chosen = [
            variant
            for variant in variants
            if (variant is base or kind_of_change(variant, base) == (group, setting))
            and variant.comparable
            and variant.scored is not None
        ]
        axis = setting
        if setting == "heads":
            chosen, axis = _of_heads(chosen, base)
        if len(chosen) > 1:
            chosen.sort(key=lambda variant: variant.settings[setting])
            title = f"{base.score.label} against {setting}"
            result.append({"title": title, "svg": _effect(chosen, setting, title, axis)})
    return result


def _of_heads(variants: Sequence[Variant], base: Variant) -> tuple[list[Variant], str]:
    """What one line may join, one point at each h, and the axis: rows (A) of the paper, whose h ×
    d_k and h × d_v are the base's; where there is none, those that change h alone."""

    def sizes(variant: Variant) -> list[Any]:
        own = variant.settings
        return [own["heads"] * own[key] for key in ("d_k", "d_v") if key in own]

    constant = [variant for variant in variants if sizes(variant) == sizes(base)]
    if len(constant) > 1:
        return constant, "h, with h × d_k constant"
    return [v for v in variants if changed_settings(v, base) <= {"heads"}], "h"


@matplotlib.rc_context(STYLE)
def _effect(variants: Sequence[Variant], setting: str, title: str, axis: str) -> Markup:
    """A small plot of the score over one setting, and the base's level. axis: its name there."""
    figure = Figure(figsize=(3.6, 2.6))
    axes = figure.subplots()
    values = [variant.settings[setting] for variant in variants]
    scores = [variant.mean_score or 0.0 for variant in variants]
    axes.plot(values, scores, color=SERIES[0], linewidth=1.2)
    for variant, place in zip(variants, zip(values, scores, strict=True), strict=True):
        scored = variant.scored
        _mark(axes, variant, place, SERIES[variant.is_base], scored.margin if scored else None)
        if variant.is_base:
            axes.axhline(place[1], color=SERIES[1], linewidth=0.8, dashes=(4, 3), zorder=1)
    if setting != "dropout":  # what doubles from row to row
        axes.set_xscale("log")
    ticks = sorted(set(values))
    ticks = ticks[:: 1 + len(ticks) // 9]
    axes.set_xticks(ticks, map(plain, ticks))
    axes.minorticks_off()
    axes.grid(axis="x", visible=False)
    axes.margins(0.08, 0.15)
    axes.set_xlabel(axis)
    axes.set_ylabel(f"{variants[0].score.label} (dev)")
    return svg(figure, title, f"effect-{setting}")


@matplotlib.rc_context(STYLE)
def validation_losses(variants: Sequence[Variant]) -> dict[str, str] | None:
    """Drawing of learning curves, named in the order in which they end, and what to say of it.

    Beyond `_MOST_CURVES` variants only those that end lowest have a name, and base.
    """
    curved = [variant for variant in variants if variant.curve]
    if not curved:
        return None
    by_end = sorted(curved, key=lambda variant: (not variant.is_base, variant.curve[-1][1]))
    named = by_end[:_MOST_CURVES]
    figure = Figure(figsize=(9.0, max(3.6, 0.18 * (len(named) + 2))))
    axes = figure.subplots()
    for variant in by_end[_MOST_CURVES:]:
        axes.plot(*zip(*variant.curve, strict=True), color=MUTED, linewidth=0.4, zorder=1)
    drawn = []
    for number, variant in enumerate(variant for variant in curved if variant in named):
        colour = SERIES[number % len(SERIES)]
        x, y = zip(*variant.curve, strict=True)
        [line] = axes.plot(
            x,
            y,
            color=colour,
            linestyle=_DASHES[number // len(SERIES) % len(_DASHES)],
            label=_short(variant.label),
            marker="o",
            markersize=5,
            markevery=[-1],
            markerfacecolor=colour if variant.state == "finished" else SURFACE,
        )
        drawn.append((y[-1], line))
    axes.set_ylim(*_loss_range([variant.curve for variant in curved]))
    step_axis(axes)
    handles = [line for _, line in sorted(drawn, key=lambda pair: -pair[0])]
    figure.legend(handles=handles, loc="outside right upper", handlelength=3, labelspacing=0.35)
    crowd = f" Of {len(curved):,} variants base and those that end lowest are named."
    return {
        "svg": svg(figure, "Validation loss of each variant against training steps", "trials"),
        "caption": crowd if len(curved) > len(named) else "",
    }


def _loss_range(curves: Sequence[Sequence[tuple[float, float]]]) -> tuple[float, float]:
    """From just under the best value to the highest one after the first fifth of a curve.

    The losses of models hardly trained would press the ends of all curves together.
    """
    low = min(y for curve in curves for _, y in curve)
    high = max(y for curve in curves for _, y in curve[min(len(curve) - 1, 1 + len(curve) // 5) :])
    margin = 0.06 * (high - low) or 0.5
    return low - margin, high + margin


def _place(variant: Variant, x: Objective, y: Objective) -> tuple[float, float]:
    return variant.mean(x.figure) or 0.0, variant.mean(y.figure) or 0.0


def _mark(
    axes: Axes,
    variant: Variant,
    place: tuple[float, float],
    colour: str,
    margin: float | None = None,
) -> None:
    """One variant; a hollow mark is not `comparable`; margin: half the 95 % interval of y."""
    hollow = not variant.comparable
    axes.errorbar(
        *place,
        yerr=margin,
        fmt="D" if variant.is_base else "o",
        markersize=9 if variant.is_base else 7,
        zorder=4 if variant.is_base else 3,
        color=colour,
        elinewidth=1,
        capsize=3,
        markerfacecolor=SURFACE if hollow else colour,
        # A rim in the page's colour keeps marks apart that lie on one another.
        markeredgecolor=colour if hollow else SURFACE,
        markeredgewidth=1.6 if hollow else 0.8,
    )


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…"
