"""The figures of a sweep, from its variants; None where there is nothing to draw."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from seq2sweep.report import plots, scatter
from seq2sweep.report.front import Objective, front
from seq2sweep.report.paper import kind_of
from seq2sweep.report.pooled import Variant, mean

# Group of Table 3 and setting, heading, label of the axis, and whether its values double.
_EFFECTS = (
    ("A", "heads", "BLEU against heads", "h, with h × d_k constant", True),
    ("B", "d_k", "BLEU against d_k", "d_k", True),
    ("D", "dropout", "BLEU against dropout", "dropout", False),
)


def objectives(variants: Sequence[Variant], sought: Sequence[Objective]) -> dict[str, str] | None:
    """Heading, drawing and caption of one objective over another, with their Pareto front.

    Of a search for two it is these; else BLEU over training FLOPs.
    """
    pair = sought if len(sought) == 2 else [Objective("bleu", True), Objective("flops", False)]
    y, x = sorted(pair, key=lambda objective: objective.is_cost)
    points = [
        point
        for variant in variants
        if (value := mean(variant, x.figure)) is not None
        # What nothing was spent on has shown nothing.
        and (value > 0 or not x.is_cost)
        and (point := _point(variant, value, y.figure))
    ]
    if not points:
        return None
    drawing = scatter.scatter(
        points,
        scatter.Axis(x.axis, x.higher, powers=x.is_cost),
        scatter.Axis(y.axis, y.higher),
        about=f"{y.name} of each variant against its {x.name}",
        name="scatter",
    )
    best = ", ".join(variant.label for variant in front(variants, pair))
    return {
        "title": "Quality against cost" if x.is_cost else f"{y.name} against {x.name}",
        "svg": Markup(drawing),
        "caption": f"{'Up' if y.higher else 'Down'} is better, {'right' if x.higher else 'left'} "
        f"is {'cheaper' if x.is_cost else 'better'}; dashed: the Pareto front, of what nothing "
        f"beats in both{f' ({best})' if sought else ''}.",
    }


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


def _point(variant: Variant, x: float, figure: str = "bleu") -> scatter.Point | None:
    y = variant.figures[figure]
    if y is None:
        return None
    return scatter.Point(
        variant.label,
        x,
        y.mean,
        margin=y.margin,
        hollow=variant.state != "finished",
        base=variant.is_base,
    )
