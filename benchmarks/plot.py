"""What benchmarks.train and benchmarks.decode printed as a plot: `python -m benchmarks.plot FILE`.

Writes an SVG file: a bar for the median of each contender, a line from its least to its greatest
rate.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Bars = dict[str, list[float]]
"""Rates of each turn, by contender."""


def main() -> None:
    """Write the plot."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs/performance.svg"))
    options = parser.parse_args()
    read = [json.loads(file.read_text("utf-8")) for file in options.files]
    draw(dict(panel for figures in read for panel in panels(figures)), options.out)


def panels(figures: dict[str, Any]) -> Iterator[tuple[str, Bars]]:
    """A title, and the contenders under it."""
    for name, size in figures.get("sizes", {}).items():
        for precision in ("bf16", "float32"):
            if precision in size:
                found = size[precision]
                own = "ours, compiled" if "times_of_eager" in found else "ours"
                ways = {own: found["ours"], **found["others"]}
                yield f"training, {name}, {precision}, target tokens/s", bars(ways)
    for title, case in figures.items():
        if isinstance(case, dict) and "ours" in case:
            yield f"decoding, {title}, sentences/s", bars(case["ours"] | case["others"])


def bars(ways: dict[str, dict[str, Any]]) -> Bars:
    """Of those that are there."""
    return {name: way["of_each_turn"] for name, way in ways.items() if "absent" not in way}


def draw(panels: dict[str, Bars], out: Path) -> None:
    """One panel below the other, the fastest on top, ours in colour."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "seq2sweep", "svg.fonttype": "none"})
    from matplotlib import pyplot as plt

    heights = [len(bars) for bars in panels.values()]
    figure, axes = plt.subplots(
        len(panels), figsize=(8, 0.32 * sum(heights) + 0.9 * len(panels)),
        height_ratios=heights, layout="constrained", squeeze=False,
    )  # fmt: skip
    for axis, (title, bars) in zip(axes[:, 0], panels.items(), strict=True):
        names = sorted(bars, key=lambda name: statistics.median(bars[name]))
        medians = [statistics.median(bars[name]) for name in names]
        spread = [
            [median - min(bars[name]) for name, median in zip(names, medians, strict=True)],
            [max(bars[name]) - median for name, median in zip(names, medians, strict=True)],
        ]
        colours = ["#0b7a75" if name.startswith("ours") else "#b9b9b9" for name in names]
        axis.barh(names, medians, xerr=spread, color=colours, ecolor="#444444", capsize=2)
        for place, (name, median) in enumerate(zip(names, medians, strict=True)):
            axis.text(
                max(medians) / 80, place, f"{median:,.0f}", va="center", fontsize=8,
                color="white" if name.startswith("ours") else "black",
            )  # fmt: skip
        axis.set_title(title, loc="left", fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
    figure.savefig(out, metadata={"Date": None})


if __name__ == "__main__":
    main()
