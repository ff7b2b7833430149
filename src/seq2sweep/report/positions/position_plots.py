"""Scores over the length of a sentence, and the sinusoids of section 3.5, drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure
from numpy.typing import NDArray

from seq2sweep.report.aggregate import Variant
from seq2sweep.report.number_format import whole
from seq2sweep.report.paper import changed_settings
from seq2sweep.report.plots import INK, LINE, MUTED, SERIES, STYLE, SURFACE, svg
from seq2sweep.report.positions.length_scores import ByLength

POSITIONS = 100
"""How many the figure shows: as many as a long sentence has tokens."""
SHOWN_PAIRS = 4
"""Pairs of a sine and a cosine, of which the sines are drawn as curves."""


# --- scores by length ----------------------------------------------------------------------------


def scores_by_length(
    variants: Sequence[Variant], lengths: ByLength | None
) -> dict[str, str] | None:
    """Drawing and caption of the score over the length of the source, a line a variant.

    Of more variants than there are colours, it is the base row and those that differ from it in
    their positions alone. None where fewer than two bins or no variant have scores.
    """
    if lengths is None or len(lengths.bins) < 2:
        return None
    base, few = variants[0], len(variants) <= len(SERIES)
    if not few:
        variants = [v for v in variants if v is base or changed_settings(v, base) == {"positions"}]
    if not (shown := lengths.scored(variants)):
        return None
    return {
        "svg": _draw_scores(shown, lengths),
        "caption": f"Corpus {base.score.label} over the validation sentences of each length in "
        "source tokens, n of them. "
        + "Of all variants only base and those that change positions alone are drawn. " * (not few)
        + "Right of the line: longer than any sentence trained on. " * bool(lengths.longer)
        + "Bars: 95 % intervals over seeds, where there are several.",
    }


@matplotlib.rc_context(STYLE)
def _draw_scores(variants: Sequence[Variant], lengths: ByLength) -> Markup:
    figure = Figure(figsize=(9.0, 3.6))
    axes = figure.subplots()
    for number, (variant, colour) in enumerate(zip(variants, SERIES, strict=False)):
        points = [
            # Side by side, so that no interval hides another.
            (place + 0.04 * (number - (len(variants) - 1) / 2), score.mean, score.margin or 0.0)
            for place, score in enumerate(lengths.of[variant.name].bins)
            if score is not None
        ]
        x, y, margins = zip(*points, strict=True)
        axes.errorbar(
            x,
            y,
            yerr=margins if any(margins) else None,
            color=colour,
            marker="D" if variant.is_base else "o",
            markersize=6,
            markeredgecolor=SURFACE,
            elinewidth=1,
            capsize=3,
            label=variant.label + variant.unfinished,
        )
    first = next((place for place, one in enumerate(lengths.bins) if one.beyond), None)
    if first is not None:
        axes.axvline(first - 0.5, color=MUTED, linewidth=1, dashes=(4, 3))
    axes.set_xticks(
        range(len(lengths.bins)),
        [f"{one.label}\nn = {whole(one.sentences)}" for one in lengths.bins],
    )
    axes.grid(axis="x", visible=False)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("source tokens")
    label = variants[0].score.label
    axes.set_ylabel(f"{label} (dev)")
    figure.legend(loc="outside right upper", labelcolor=INK, edgecolor=LINE)
    return svg(figure, f"{label} of variants by the length of the source", "by-length")


# --- sinusoids -----------------------------------------------------------------------------------


def sinusoids(positions: int, d_model: int) -> NDArray[np.float64]:
    """PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i + 1) = cos of the same.

    [positions, d_model]. From the equations of section 3.5: the report runs without the model's
    code, which needs PyTorch.
    """
    angles = np.arange(positions)[:, None] / 10000.0 ** (np.arange(0, d_model, 2) / d_model)
    return np.stack((np.sin(angles), np.cos(angles)), axis=2).reshape(positions, -1)


def section(model: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What the page says of a model's positions: `text`, and `plots` where they are sinusoids.

    model: its settings; None, or an architecture that has no positions, gives None.
    """
    model = model if isinstance(model, Mapping) else {}
    kind, width = model.get("positions"), model.get("d_model")
    if kind not in ("sinusoidal", "learned") or not isinstance(width, int) or width < 2:
        return None
    if kind == "learned":
        return {
            "text": "This model learns a vector for each position (Table 3, row E), so there are "
            "no sinusoids to show. Positions that no training sentence reached stay as they were "
            "initialised.",
            "plots": [],
        }
    values = sinusoids(POSITIONS, width)
    return {
        "text": "What is added to the embedding of the token at position pos, d_model = "
        f"{width}: PE(pos, 2i) = sin(pos / 10000^(2i / d_model)) and PE(pos, 2i + 1) = the cosine "
        "of the same. Computed, not learned: there is one for any position.",
        "plots": [
            {
                "title": "All dimensions",
                "svg": _heat_map(values),
                "caption": "Blue: above 0, orange: below, the deeper the further. Each pair of "
                "dimensions turns more slowly than the one before it.",
            },
            {
                "title": "Some dimensions",
                "svg": _curves(values),
                "caption": "By their numbers. Over all dimensions wavelengths grow from 2π to "
                "nearly 10000 · 2π positions.",
            },
        ],
    }


@matplotlib.rc_context(STYLE)
def _heat_map(values: NDArray[np.float64]) -> Markup:
    """values: [positions, d_model]. One small picture inside of the drawing, position 0 on top."""
    # Two colours as opaque as a value is far from 0, so that it suits a light and a dark page. Few
    # steps of it: a picture of a wide model is a third as large.
    colours = np.where(values[..., None] > 0, (0.23, 0.51, 0.80), (0.85, 0.44, 0.19))
    opacity = np.round(np.abs(values) * 16) / 16
    figure = Figure(figsize=(5.0, 3.4))
    axes = figure.subplots()
    axes.imshow(
        np.concatenate((colours, opacity[..., None]), axis=2),
        aspect="auto",
        interpolation="none",
    )
    axes.grid(visible=False)
    axes.set_xlabel("dimension")
    axes.set_ylabel("position")
    return svg(figure, "The sinusoids of each position and dimension", "sinusoids")


@matplotlib.rc_context(STYLE)
def _curves(values: NDArray[np.float64]) -> Markup:
    """values: [positions, d_model], of which the sines of a few pairs are drawn."""
    positions, width = values.shape
    pairs = width // 2
    figure = Figure(figsize=(5.0, 3.4))
    axes = figure.subplots()
    # Of the first half: within so few positions the others are nearly straight.
    chosen = sorted({pairs * part // (2 * SHOWN_PAIRS) for part in range(SHOWN_PAIRS)})
    for pair, colour in zip(chosen, SERIES, strict=False):
        curve = values[:, 2 * pair]
        axes.plot(range(positions), curve, color=colour, linewidth=1.2, label=str(2 * pair))
    axes.set_xlabel("position")
    axes.set_ylabel("PE")
    axes.grid(axis="x", visible=False)
    figure.legend(loc="outside upper center", ncols=SHOWN_PAIRS, labelcolor=INK, edgecolor=LINE)
    return svg(figure, "Sinusoids of a few dimensions over positions", "sinusoid-curves")
