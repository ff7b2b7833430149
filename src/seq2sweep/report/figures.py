"""The figures of a sweep, from its variants; None where there is nothing to draw."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from seq2sweep.report import plots, scatter
from seq2sweep.report.paper import kind_of
from seq2sweep.report.pooled import Variant, mean

# Group of Table 3 and setting, heading, label of the axis, and whether its values double.
_EFFECTS = (
    ("A", "heads", "BLEU against heads", "h, with h × d_k constant", True),
    ("B", "d_k", "BLEU against d_k", "d_k", True),
    ("D", "dropout", "BLEU against dropout", "dropout", False),
)


def quality_against_cost(variants: Sequence[Variant]) -> Markup | None:
    """BLEU over training FLOPs, with the Pareto front."""
    points = [
        point
        for variant in variants
        if (flops := mean(variant, "flops")) and (point := _point(variant, flops))
    ]
    if not points:
        return None
    return Markup(
        scatter.scatter(
            points,
            about="BLEU of each variant against the FLOPs of its training",
            x_label="training FLOPs",
            y_label="BLEU (dev)",
            name="scatter",
        )
    )


def effects(variants: Sequence[Variant]) -> list[dict[str, str]]:
    """Title and drawing for each setting that variants change alone; base's point is in each."""
    base = variants[0]
    result = []
    for group, setting, title, label, doubling in _EFFECTS:
        chosen = [v for v in variants if v is base or kind_of(v, base) == (group, setting)]
        points = [
            point
            for variant in chosen
            if variant.state == "finished" and (point := _point(variant, variant.settings[setting]))
        ]
        if len(points) > 1:
            drawing = scatter.effect(
                points,
                about=title,
                x_label=label,
                y_label="BLEU (dev)",
                name=f"effect-{setting}",
                doubling=doubling,
            )
            result.append({"title": title, "svg": Markup(drawing)})
    return result


def validation_losses(variants: Sequence[Variant]) -> Markup | None:
    """Learning curves, one a variant."""
    curves = [
        plots.Curve(variant.label, variant.curve, stopped=variant.state != "finished")
        for variant in variants
        if variant.curve
    ]
    if not curves:
        return None
    return Markup(
        plots.labelled_lines(
            curves,
            about="Validation loss of each variant against training steps",
            x_label="step",
            name="trials",
        )
    )


def _point(variant: Variant, x: float) -> scatter.Point | None:
    bleu = variant.figures["bleu"]
    if bleu is None:
        return None
    return scatter.Point(
        variant.label,
        x,
        bleu.mean,
        margin=bleu.margin,
        hollow=variant.state != "finished",
        base=variant.is_base,
    )
