"""Plots as inline SVG that takes its colours and fonts from the page around it.

matplotlib draws with placeholder colours that become CSS variables (`--ink`, `--series-1`, ...),
so one drawing suits a light and a dark page. The same data give the same bytes.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Mapping, Sequence

import matplotlib
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

# Placeholder colours; no other colour may appear in a plot.
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
    "text.parse_math": False,
    "text.color": INK,
    "axes.edgecolor": LINE,
    "axes.facecolor": "none",
    "axes.labelcolor": MUTED,
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
    "xtick.minor.size": 0,
    "lines.linewidth": 1.6,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "figure.dpi": 72,  # points are pixels
}

Points = Sequence[tuple[float, float]]
"""(x, y) of one line."""


@matplotlib.rc_context(STYLE)
def lines(curves: Mapping[str, Points], title: str, *, from_zero: bool, name: str) -> Markup:
    """A small plot of one or a few lines by their labels, against training steps.

    from_zero: whether the axis of values begins there. name: unique on the page.
    """
    figure = Figure(figsize=(5.0, 2.6))
    axes = figure.subplots()
    for (label, points), colour in zip(curves.items(), SERIES, strict=False):
        # A line of one point would be invisible.
        marker = "o" if len(points) < 12 else ""
        x, y = zip(*points, strict=True)
        axes.plot(x, y, marker=marker, markersize=4, color=colour, label=label)
    if from_zero:
        axes.set_ylim(bottom=0)
    if len(curves) > 1:
        axes.legend()
    step_axis(axes)
    return svg(figure, f"{title} against training steps", name)


def step_axis(axes: Axes) -> None:
    """Training steps from 0 on, `1k` for 1000."""
    axes.grid(axis="x", visible=False)
    axes.set_xlim(left=0)
    axes.set_xlabel("step")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    if axes.get_ylim()[1] >= 10_000:
        axes.yaxis.set_major_formatter(EngFormatter(sep=""))


def svg(figure: Figure, about: str, name: str) -> Markup:
    """The drawing as an <svg> element without a fixed size, identifiers prefixed by `name`.

    about: what it shows, for those who do not see it.
    """
    stream = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(stream, format="svg", transparent=True, metadata=nothing)
    _, tag, text = stream.getvalue().partition("<svg")
    attributes, end, content = text.partition(">")
    attributes = re.sub(r'\s(xmlns(:\w+)?|version|width|height)="[^"]*"', "", attributes)
    content = content.replace("xlink:href", "href")
    content = re.sub(r'\bid="', f'id="{name}-', content)
    content = re.sub(r'(url\(|href=")#', rf"\1#{name}-", content)
    for placeholder, variable in _VARIABLES.items():
        content = content.replace(placeholder, f"var({variable})")
    return Markup(f'{tag} role="img" aria-label="{html.escape(about)}"{attributes}{end}{content}')
