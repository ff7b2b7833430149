"""Table 1 of the paper measured, from reports/table1.json: its tables, notes, plots and files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from seq2sweep import console
from seq2sweep.report.formats import paper_files
from seq2sweep.report.markdown import Table, as_csv
from seq2sweep.report.number_format import MISSING, fixed, whole
from seq2sweep.report.paper_tables.table1_record import of_layer
from seq2sweep.report.plots import INK, LINE, MUTED, SERIES, STYLE, svg
from seq2sweep.table1.exponents import crossover, largest
from seq2sweep.table1.rows import BOTH, BY_NAME, CROSSOVERS, FORWARD, Crossover, Row
from seq2sweep.table1.timing import PROCESSOR, WALL

BYTES = {"float32": 4, "bf16": 2}
TITLE = "Table 1, measured"
CAVEATS = {
    PROCESSOR: ". The times are of that part alone, but other work shared its caches",
    WALL: ", so that its times are not those of the layers alone",
}
"""What a busy machine means for times by each clock."""
BUSY = 0.9
"""Share of the time that the measuring had the processor, below which it is called busy."""


@dataclass(frozen=True)
class Plot:
    """A drawing for the page, with what it shows in words."""

    title: str
    svg: Markup
    caption: str


def table1_files(record: Mapping[str, Any]) -> dict[str, str]:
    """The text of each file by its name, from reports/table1.json."""
    shown = section(record)
    return paper_files("table1", TITLE, shown, _csv(record), about=[shown["where"]])


def _csv(record: Mapping[str, Any]) -> str:
    """A line a layer, n and d, with all that was measured there."""
    lines = []
    for m in record["measurements"]:
        line = {key: value for key, value in m.items() if key not in (FORWARD, BOTH)}
        for what in (FORWARD, BOTH):
            line |= {f"{what}_{key}": value for key, value in m[what].items()}
        lines.append(line)
    return as_csv(lines, lines[0])


def section(record: Mapping[str, Any]) -> dict[str, Any]:
    """What the page shows: `where`, `tables` and `plots`."""
    return {
        "where": where(record),
        "tables": tables(record),
        "plots": [plot for pair in CROSSOVERS if (plot := _plot(record, pair))],
    }


def where(record: Mapping[str, Any]) -> str:
    """On what, when and of which code it was measured, in a sentence or two."""
    about = record["about"]
    threads = about["threads"]
    changed = " with changes that were not committed" * (about.get("git.dirty") == "true")
    said = (
        f"Measured {about['date']} in {console.duration(about['seconds'])} on "
        f"{about['hardware.cpu']} ({about['hardware.cores']} cores, {threads} "
        f"thread{'s' * (threads > 1)}, {about['precision']}, torch {about['torch']}), "
        f"commit {about['git.commit'][:7]}{changed}."
    )
    if about["cpu_share"] is not None and about["cpu_share"] < BUSY:
        said += (
            f" The machine was busy: this had the processor {100 * about['cpu_share']:.0f} % of "
            f"the time{CAVEATS[_clock(record)]}."
        )
    return said


def tables(record: Mapping[str, Any]) -> list[Table]:
    """Costs, chains and paths, where the costs of two layers cross, and what was computed."""
    rows = [BY_NAME[name] for name in record["exponents"]]
    crossing = _crossings(record)
    between = [crossing] if crossing else []
    return [_costs(record, rows), _lengths(record, rows), *between, _kernels(record, rows)]


# --- tables --------------------------------------------------------------------------------------


def _costs(record: Mapping[str, Any], rows: Sequence[Row]) -> Table:
    settings = record["settings"]
    n, d = settings["lengths"][-1], settings["widths"][-1]
    body = []
    for row in rows:
        found, last = record["exponents"][row.name], of_layer(record, row.name)[n, d]
        numbers = last["saved_bytes"] / BYTES[record["about"]["precision"]] / (n * d)
        body.append(
            (
                row.title,
                row.complexity,
                row.flops_text,
                MISSING if row.exponents is None else f"{row.exponents[0]}, {row.exponents[1]}",
                ", ".join(_trimmed(found["flops"][axis]["exponent"]) for axis in "nd"),
                *(
                    ", ".join(_with_margin(found[what][axis]) for axis in "nd")
                    for what in (FORWARD, BOTH)
                ),
                " / ".join(_milliseconds(last[what]["seconds"]) for what in (FORWARD, BOTH)),
                fixed(numbers, 1),
            )
        )
    headings = (
        "layer",
        "complexity (paper)",
        "operations",
        "exponents of n, d (paper)",
        "counted",
        "time forward",
        "time forward and backward",
        f"ms at n = {n}, d = {d}",
        "saved per n·d",
    )
    return Table("Work per layer", headings, body, _notes_on_costs(record), words=(1, 2))


def _notes_on_costs(record: Mapping[str, Any]) -> list[str]:
    settings = record["settings"]
    lengths, widths = largest(settings["lengths"]), largest(settings["widths"])
    wrong = sum(m["flops"] != m["flops_counted"] for m in record["measurements"])
    agreement = (
        f"equal to what PyTorch's counter finds at all {len(record['measurements'])} sizes"
        if not wrong
        else f"not what PyTorch's counter finds at {wrong} of {len(record['measurements'])} sizes"
    )
    return [
        f"One sentence of n tokens, d numbers a token, k = {settings['kernel']}, "
        f"r = {settings['neighbourhood']} positions with its own.",
        f"Operations: of a forward pass, a multiply-add is two; {agreement}.",
        f"Exponents: a and b of time = c · n^a · d^b, over n of {_list(lengths)} and d of "
        f"{_list(widths)}, with 95 % intervals; smaller sizes measure overhead. Where operations "
        "are a sum of two terms, so is what the exponents lie between.",
        f"Times: by the {_clock(record)} clock, medians of interleaved repeats after a warm-up, "
        "forward without and forward and backward with gradients.",
        "Saved per n·d: numbers that a forward pass keeps for the backward pass, the input among "
        "them, divided by n·d.",
    ]


def _lengths(record: Mapping[str, Any], rows: Sequence[Row]) -> Table:
    shown = _shown_lengths(record)
    body = []
    for row in rows:
        paths = {entry["n"]: entry for entry in record["paths"][row.name]}
        cells = [_path(paths[n]) for n in shown]
        body.append(
            (row.title, row.sequential, _chain(record["chains"][row.name]), row.path, *cells)
        )
    headings = (
        "layer",
        "sequential operations (paper)",
        "longest chain",
        "maximum path (paper)",
        *(f"n = {n}" for n in shown),
    )
    title = "Sequential operations and path lengths"
    return Table(title, headings, body, _notes_on_paths(record), words=(1, 3))


def _notes_on_paths(record: Mapping[str, Any]) -> list[str]:
    checked = [
        (name, entry["n"], entry[way] == entry[f"{way}_by_jacobian"])
        for name, entries in record["paths"].items()
        for entry in entries
        for way in ("both", "causal")
        if f"{way}_by_jacobian" in entry
    ]
    differ = sorted({f"{name} at n = {n}" for name, n, same in checked if not same})
    ways = f"agree in all {len(checked)} cases" if not differ else f"differ: {', '.join(differ)}"
    return [
        "Longest chain: products, convolutions and softmaxes of one layer that wait for each "
        "other, in the autograd graph of the layer written out.",
        "Paths: operations from any position to any other; then from any to those after it "
        "(causal); in brackets the paper's order in numbers, without its O. A centred window "
        "reaches half as far to each side, so that the paper's n/k and n/r are a factor of about "
        "2 short; log_k n holds for a causal stack, while a centred one needs its dilations "
        "again: each once never connects all positions.",
        "Found by a search in the graph, beyond n = 512 by a closed form where a layer has one, "
        f"and up to n = 32 by the derivatives of stacked layers too: the two ways {ways}.",
    ]


def _crossings(record: Mapping[str, Any]) -> Table | None:
    settings = record["settings"]
    body = []
    for pair in CROSSOVERS:
        if not {pair.first, pair.second} <= record["exponents"].keys():
            continue
        titles = [BY_NAME[name].title for name in (pair.first, pair.second)]
        body += [
            (
                " and ".join(titles),
                str(d),
                str(pair.multiple * d),
                *(_crossing(record, pair, what, d) for what in (FORWARD, BOTH)),
            )
            for d in settings["widths"]
        ]
    notes = (
        "The n from which on the first of the two layers costs more than the second. The paper "
        "compares attention without its projections with a recurrence of one product: equal at "
        "n = d. Whole multi-head attention and an LSTM, the layers that Table 2 compares, are "
        "equal at n = 2d; whole multi-head attention never needs fewer operations than an Elman "
        "layer.",
    )
    headings = ("layers", "d", "n by operations", "n by time, forward", "forward and backward")
    return Table("Where two layers cost the same", headings, body, notes) if body else None


def _kernels(record: Mapping[str, Any], rows: Sequence[Row]) -> Table:
    d = record["settings"]["widths"][-1]
    n = record["settings"]["lengths"][-1]
    body = [
        (row.title, row.timed, row.counted, whole(of_layer(record, row.name)[n, d]["parameters"]))
        for row in rows
    ]
    headings = ("layer", "timed", "operations counted of", f"parameters at d = {d}")
    notes = (
        "Attention without projections is what the paper's table counts; fused kernels tell a "
        "counter nothing, so that operations are those of the layer written out, which computes "
        "the same numbers.",
    )
    return Table("What was timed and counted", headings, body, notes, words=(1, 2))


# --- cells ---------------------------------------------------------------------------------------


def _clock(record: Mapping[str, Any]) -> str:
    """Records of earlier versions have none: it was the wall's."""
    return str(record["about"].get("clock", WALL))


def _crossing(record: Mapping[str, Any], pair: Crossover, what: str, d: int) -> str:
    first, second = (
        {size: m[what]["seconds"] for size, m in of_layer(record, layer).items()}
        for layer in (pair.first, pair.second)
    )
    found = crossover(first, second, d)
    if found is None:
        return f"below {record['settings']['lengths'][0]}"
    if math.isinf(found):
        return f"above {record['settings']['lengths'][-1]}"
    return f"{found:.0f}"


def _shown_lengths(record: Mapping[str, Any]) -> list[int]:
    known = sorted({entry["n"] for entries in record["paths"].values() for entry in entries})
    return [n for n in known if n in (8, 16, 32) or n == known[-1]]


def _path(entry: Mapping[str, Any]) -> str:
    both, causal = (MISSING if entry[w] is None else str(entry[w]) for w in ("both", "causal"))
    return f"{both}, {causal} ({_trimmed(entry['order'], 1)})"


def _chain(chain: Mapping[str, int]) -> str:
    """`5` where it is the same at all lengths, `n + 1` where it grows as they do."""
    if len(set(chain.values())) == 1:
        return str(next(iter(chain.values())))
    beyond = {length - int(n) for n, length in chain.items()}
    if len(beyond) == 1:
        more = beyond.pop()
        return "n" if more == 0 else f"n {'+' if more > 0 else '−'} {abs(more)}"
    return ", ".join(f"{length} at {n}" for n, length in chain.items())


def _trimmed(value: float, decimals: int = 2) -> str:
    """`2` for 2.00."""
    text = fixed(value, decimals)
    return text.rstrip("0").rstrip(".") if "." in text else text


def _with_margin(found: Mapping[str, float | None]) -> str:
    exponent, high = found["exponent"], found["high"]
    margin = "" if high is None or exponent is None else f" ± {fixed(high - exponent, 2)}"
    return fixed(exponent, 2).replace("-", "−") + margin


def _milliseconds(seconds: float) -> str:
    value = 1000 * seconds
    return fixed(value, 0 if value >= 100 else 1 if value >= 10 else 2)


def _list(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


# --- plots ---------------------------------------------------------------------------------------


def _plot(record: Mapping[str, Any], pair: Crossover) -> Plot | None:
    settings = record["settings"]
    if not {pair.first, pair.second} <= record["exponents"].keys():
        return None
    lengths = settings["lengths"]
    inside = [d for d in settings["widths"] if lengths[0] < pair.multiple * d < lengths[-1]]
    d = max(inside or settings["widths"][-1:])
    titles = [BY_NAME[name].title for name in (pair.first, pair.second)]
    at = "n = d" if pair.multiple == 1 else f"n = {pair.multiple}d"
    return Plot(
        f"{titles[0]} against {titles[1]}, d = {d}",
        _draw(record, pair, d, at),
        f"Forward pass, with quartiles. Dashed: operations at one rate for both, which cross at "
        f"{at} = {pair.multiple * d}. The times cross: n {_crossing(record, pair, FORWARD, d)}.",
    )


@matplotlib.rc_context(STYLE)
def _draw(record: Mapping[str, Any], pair: Crossover, d: int, at: str) -> Markup:
    """Measured times of two layers over n, and their operations, on logarithmic axes."""
    figure = Figure(figsize=(5.0, 3.4))
    axes = figure.subplots()
    lengths = record["settings"]["lengths"]
    found = {name: of_layer(record, name) for name in (pair.first, pair.second)}
    # Both at the rate that the two reach on average, so that only operations tell them apart.
    rates = [m["flops"] / m[FORWARD]["seconds"] for one in found.values() for m in one.values()]
    rate = math.exp(sum(map(math.log, rates)) / len(rates))
    for (name, one), colour in zip(found.items(), SERIES, strict=False):
        own = [one[n, d] for n in lengths]
        times = [1000 * m[FORWARD]["seconds"] for m in own]
        low, high = (
            [1000 * abs(m[FORWARD][side] - m[FORWARD]["seconds"]) for m in own]
            for side in ("low_quartile", "high_quartile")
        )
        axes.errorbar(
            lengths,
            times,
            yerr=[low, high],
            color=colour,
            marker="o",
            markersize=4,
            elinewidth=1,
            label=BY_NAME[name].title,
        )
        axes.plot(
            lengths,
            [1000 * m["flops"] / rate for m in own],
            color=colour,
            linewidth=1,
            dashes=(4, 3),
        )
    axes.axvline(pair.multiple * d, color=MUTED, linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.minorticks_off()
    axes.set_xticks(lengths, map(str, lengths))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.grid(axis="x", visible=False)
    axes.set_xlabel(f"n (line: {at})")
    axes.set_ylabel("milliseconds")
    axes.legend(labelcolor=INK, edgecolor=LINE)
    return svg(figure, f"Time of {pair.first} and {pair.second} over n", f"crossover-{pair.second}")
