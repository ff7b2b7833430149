"""The plots of a sweep: what is drawn, named and said of it."""

from __future__ import annotations

import dataclasses
import html
import itertools
import re
from typing import Any

import matplotlib
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text

from seq2sweep.report import page, plots, sweep_plots
from seq2sweep.report.aggregate import aggregate
from seq2sweep.report.pareto import Objective, objectives
from tests.report.made_up_results import search, sweep, table3_sweep, trial, undrawn
from tests.report.parsing_sweep import of_parsing
from tests.report.test_pareto import labels, of


def points(places: dict[str, tuple[float, float]]) -> list[dict[str, Any]]:
    """Trials by name, of (FLOPs, BLEU)."""
    plain = sweep()["trials"][1]
    return [
        plain | {"name": name, "flops": flops, "bleu": bleu}
        for name, (flops, bleu) in places.items()
    ]


def texts(svg: str) -> list[str]:
    """Each text of a drawing."""
    found = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    return [html.unescape(text).strip() for text in found]


def height_of(svg: str) -> float:
    size = re.search(r'viewBox="0 0 [\d.]+ ([\d.]+)"', svg)
    assert size
    return float(size.group(1))


def drawn(trials: list[dict[str, Any]], sought: list[Objective] | None = None) -> str:
    found = sweep_plots.objectives(aggregate(sweep() | {"trials": trials}), sought or [])
    assert found is not None
    return found["svg"]


@pytest.mark.parametrize(
    ("figures", "title", "caption"),
    [
        (
            ["bleu", "flops"],
            "Quality against cost",
            "Up is better, left is cheaper; dashed: the Pareto front, of what nothing beats in "
            "both (#1, base, #4).",
        ),
        (
            ["flops", "valid_perplexity"],
            "Quality against cost",
            "Down is better, left is cheaper; dashed: the Pareto front, of what nothing beats in "
            "both (#1, base, #2, #4).",
        ),
        (
            ["valid_perplexity", "bleu"],
            "perplexity against BLEU",
            "Down is better, right is better; dashed: the Pareto front, of what nothing beats in "
            "both (#4).",
        ),
    ],
)
def test_the_page_draws_the_objectives(figures: list[str], title: str, caption: str) -> None:
    record = of(search(), *figures)
    rendered = page.render(dataclasses.replace(undrawn(), sweep=record))
    assert f"<h2>{title}</h2>" in rendered
    assert caption in rendered
    assert rendered.count('class="finished front"') + rendered.count('class="base front"') == len(
        labels(record)
    )
    drawing = re.search(
        r'<svg[^>]*aria-label="[^"]* of each variant against its.*?</svg>', rendered, re.S
    )
    assert drawing
    for label in ("#1", "#2", "#4", "#6", "base"):
        assert f">{label}<" in drawing.group()


def test_a_sweep_that_is_no_search_is_drawn_as_before() -> None:
    found = sweep_plots.objectives(aggregate(sweep()), objectives(sweep()))
    assert found is not None
    assert found["caption"].endswith("the Pareto front, of what nothing beats in both.")
    assert "training FLOPs" in found["svg"]


@pytest.mark.parametrize(
    ("sought", "title", "by_size"),
    [
        ([], "Quality against size", True),
        (["bleu"], "Quality against size", True),
        (["bleu", "parameters"], "Quality against cost", False),
    ],
)
def test_at_equal_flops_there_is_no_front_of_them(
    sought: list[str], title: str, by_size: bool
) -> None:
    record = of(search(), *sought) | {"budget": "flops"}
    for one in record["trials"]:
        one["flops"] = 2e12 + one["bleu"] if one["bleu"] else None
    rendered = page.render(dataclasses.replace(undrawn(), sweep=record))
    assert f"<h2>{title}</h2>" in rendered
    assert ("equal FLOPs, so that none was cheaper." in rendered) is by_size
    found = sweep_plots.objectives(aggregate(record), objectives(record), equal_flops=True)
    assert found is not None
    assert ("stroke-dasharray" in found["svg"]) is not by_size
    assert "parameters" in texts(found["svg"])
    assert "training FLOPs" not in texts(found["svg"])


def test_only_finished_points_are_on_the_front() -> None:
    trials = points({"a": (1, 1), "cheap and good, but stopped": (1, 9), "b": (2, 2)})
    trials[1] |= {"status": "stopped early"}
    assert drawn(trials).count("stroke-dasharray") == 1
    assert "stroke-dasharray" not in drawn(trials[:2])
    assert "stroke-dasharray" not in drawn(trials[1:2])
    # A mark that is filled as the page is looks hollow.
    assert drawn(trials).count("fill: var(--surface)") == 1


def test_a_mean_of_chosen_seeds_looks_hollow_and_stands_in_no_row_of_others() -> None:
    record = table3_sweep(3)

    def shown() -> tuple[int, str]:
        variants = aggregate(record)
        effects = {one["title"]: one["svg"] for one in sweep_plots.effects(variants)}
        found = sweep_plots.objectives(variants, [])
        assert found is not None
        return found["svg"].count("fill: var(--surface)"), effects.get("BLEU against heads", "")

    before, with_all = shown()
    [one] = [t for t in record["trials"] if (t["variant"], t["seed"]) == ("A-heads-1", 2)]
    one |= {"status": "stopped early", "steps": 100}
    after, without = shown()
    assert (before, after) == (0, 1)
    assert with_all != without


@pytest.mark.parametrize("higher", [True, False])
def test_the_line_of_the_front_goes_through_what_is_reached(higher: bool) -> None:
    """From the best x to what is better in y: along its level, then to the next point."""
    places = {"a": (3.0, 1.0), "b": (1.0, 2.0)} if higher else {"a": (1.0, 1.0), "b": (3.0, 2.0)}
    drawing = drawn(points(places), [Objective("bleu", True), Objective("flops", higher)])
    [path] = re.findall(r'<path d="([^"]*)"[^>]*stroke-dasharray', drawing)
    numbers = [float(number) for number in re.findall(r"-?[\d.]+", path)]
    (ax, ay), (cx, cy), (bx, by) = zip(numbers[::2], numbers[1::2], strict=True)
    assert cx == bx
    assert (ax > cx) == higher
    assert ay == cy > by, "SVG counts from the top"


def test_a_trial_that_cost_nothing_is_not_drawn() -> None:
    trials = points({"a": (0, 1), "b": (1, 2)})
    assert ">a</text>" not in drawn(trials)
    assert sweep_plots.objectives(aggregate(sweep() | {"trials": trials[:1]}), []) is None


@matplotlib.rc_context(plots.STYLE)
def test_names_cover_neither_points_nor_each_other_nor_the_line() -> None:
    figure = Figure(figsize=(9.0, 4.6))
    axes = figure.subplots()
    line = [(0.0, 0.5), (0.4, 0.5), (1.0, 0.5)]
    axes.plot(*zip(*line, strict=True))
    axes.set_ylim(0, 1)
    figure.draw_without_rendering()
    names = [(f"name {number}", (0.5, 0.5 + number / 50)) for number in range(12)]
    names.append(("on the line", (0.2, 0.5)))
    names.append(("nameless", (0.24, 0.6)))
    names.append(("beside it", (0.2, 0.6)))
    named = [name != "nameless" for name, _ in names]
    sweep_plots._name_points(axes, names, line, named)
    placed = [text for text in axes.texts if isinstance(text, Annotation)]
    assert [text.get_text() for text in placed] == [n for n, _ in names if n != "nameless"]
    figure.draw_without_rendering()
    # Of the names without their lines.
    extents = [Text.get_window_extent(text) for text in placed]
    for one, other in itertools.combinations(extents, 2):
        assert not one.overlaps(other)
    level = axes.transData.transform(line[0])[1]
    for box in extents:
        assert axes.bbox.contains(*box.min)
        assert axes.bbox.contains(*box.max)
        assert not box.y0 < level < box.y1
        for _, place in names:
            assert not box.contains(*axes.transData.transform(place))


def test_of_many_variants_base_and_the_front_are_named_and_the_plot_stays_low() -> None:
    def scatter(count: int) -> tuple[str, set[str], float]:
        best = {"best": (1.0, 99.0), "dear": (2e3, 100.0)}
        others = {f"v{i}": (2.0 + i % 40, 50 - i // 40 * 3.0) for i in range(count - 3)}
        trials = [sweep()["trials"][0] | {"flops": 50.0, "bleu": 20.0}, *points(best | others)]
        found = sweep_plots.objectives(aggregate(sweep() | {"trials": trials}), [])
        assert found is not None
        names = {"base", *best, *others}
        return found["caption"], names & set(texts(found["svg"])), height_of(found["svg"])

    caption, named, height = scatter(60)
    assert len(named) == 60
    assert "named" not in caption
    caption, named, same = scatter(300)
    assert named == {"base", "best", "dear"}
    assert same == height
    assert caption.endswith(" Of 300 variants only base and that front are named.")


@pytest.mark.parametrize("seeds", [1, 3])
def test_losses_are_named_in_the_order_in_which_they_end(seeds: int) -> None:
    variants = aggregate(table3_sweep(seeds))
    found = sweep_plots.validation_losses(variants)
    assert found is not None
    assert found["caption"] == ""
    ends = {variant.label: variant.curve[-1][1] for variant in variants if variant.curve}
    named = [text for text in texts(found["svg"]) if text in ends]
    assert named == sorted(ends, key=lambda label: -ends[label])


def test_of_many_losses_the_lowest_are_named() -> None:
    """And the drawing does not grow with them."""

    def drawn(count: int) -> tuple[str, set[str], float]:
        ends = [3.0, *(n / count for n in range(1, count))]
        names = ["base", *(f"v{n}" for n in range(1, count))]
        trials = [
            trial(name, {"d_ff": n} if n else {}) | {"curve": [[1, 9.0], [2, end]]}
            for n, (name, end) in enumerate(zip(names, ends, strict=True))
        ]
        found = sweep_plots.validation_losses(aggregate(sweep() | {"trials": trials}))
        assert found is not None
        shown = set(names).intersection(texts(found["svg"]))
        return found["caption"], shown, height_of(found["svg"])

    lowest = {"base", *(f"v{n}" for n in range(1, 40))}
    caption, named, height = drawn(40)
    assert (caption, named) == ("", lowest)
    caption, named, same = drawn(300)
    assert (named, same) == (lowest, height)
    assert caption == " Of 300 variants base and those that end lowest are named."


def test_h_is_drawn_with_h_times_d_k_constant_or_alone() -> None:
    """And no line joins two points at one h."""

    def of_heads(*others: dict[str, int]) -> tuple[str, list[tuple[int, int]]]:
        record = sweep()
        trials = [trial(" ".join(f"{k}={v}" for k, v in one.items()), one) for one in others]
        variants = aggregate(record | {"trials": [record["trials"][0], *trials]})
        chosen, axis = sweep_plots._of_heads(variants, variants[0])
        return axis, [(one.settings["heads"], one.settings["d_k"]) for one in chosen]

    constant = [{"heads": h, "d_k": 128 // h, "d_v": 128 // h} for h in (1, 2, 8)]
    alone = [{"heads": 2}, {"heads": 8}]
    grid = [{"heads": h, "d_k": d} for h in (2, 8) for d in (8, 64)]
    axis, of_paper = "h, with h × d_k constant", [(4, 32), (1, 128), (2, 64), (8, 16)]
    assert of_heads(*constant) == of_heads(*constant, *alone, *grid) == (axis, of_paper)
    assert of_heads(*alone) == of_heads(*alone, *grid) == ("h", [(4, 32), (2, 32), (8, 32)])
    two = sweep() | {"trials": [sweep()["trials"][0], trial("heads 2", {"heads": 2})]}
    for record, said in ((sweep(), True), (two, False)):
        [drawing] = [
            effect["svg"]
            for effect in sweep_plots.effects(aggregate(record))
            if effect["title"] == "BLEU against heads"
        ]
        assert (axis in html.unescape(drawing)) is said
        assert (">h</text>" in drawing) is not said


def test_plots_of_parsing_say_f1() -> None:
    for record in (of_parsing(sweep()), of_parsing(search())):
        variants = aggregate(record)
        scatter = sweep_plots.objectives(variants, objectives(record))
        assert scatter is not None
        drawn = "".join([*scatter.values(), *(str(e) for e in sweep_plots.effects(variants))])
        assert "F1 (dev)" in scatter["svg"]
        assert "BLEU" not in drawn
    assert [e["title"] for e in sweep_plots.effects(aggregate(of_parsing(sweep())))] == [
        *("F1 against heads", "F1 against d_k", "F1 against dropout"),
    ]
