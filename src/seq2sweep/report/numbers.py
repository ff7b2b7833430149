"""The table of a sweep for programs: plain numbers, nothing rounded, nothing left out."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any

from seq2sweep.presets import table3
from seq2sweep.report.paper import counterpart
from seq2sweep.report.pooled import FIGURES, Variant, pooled
from seq2sweep.report.seeds import Estimate
from seq2sweep.report.table import SETTINGS

_SAME_FOR_ALL_SEEDS = ("parameters", "flops")


def csv_text(sweep: Mapping[str, Any] | None) -> str:
    """reports/table3.csv: a line a variant; an empty cell for what is not known.

    A figure that differs between seeds has four columns: its mean, `_sd` (n - 1), `_margin` (half
    the 95 % interval) and `_n`. `shared_device`: others trained there at the same time, so that
    `device_hours` count for each of them. `bleu_difference*` are against the base row; `paper_*`
    are of the paper's row beside it, their `_difference` against the paper's base row. Without a
    sweep there is the line of headings alone.
    """
    variants = pooled(sweep or {"base": {"model": {}, "train": {}}, "trials": []})
    lines = [_line(variant, variants[0]) for variant in variants]
    stream = io.StringIO()
    writer = csv.DictWriter(stream, lines[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines if sweep else [])
    return stream.getvalue()


def _line(variant: Variant, base: Variant) -> dict[str, Any]:
    line: dict[str, Any] = {
        "variant": variant.name,
        "row": variant.row,
        "proposal": variant.number,
        "group": variant.group,
        **{setting: variant.settings.get(setting) for setting in SETTINGS.values()},
        "positions": variant.settings.get("positions"),
        "status": variant.status,
        "cause": "; ".join(f"{name}: {cause}" for name, cause in variant.failures),
    }
    for figure in FIGURES:
        known = variant.figures[figure]
        line[figure] = None if known is None else known.mean
        if figure not in _SAME_FOR_ALL_SEEDS:
            line |= _spread(figure, known)
    line["shared_device"] = variant.shared
    against = variant.against
    line["bleu_difference"] = None if against is None else against.difference.mean
    line["bleu_difference_margin"] = None if against is None else against.difference.margin
    for part in ("p", "low", "high", "seen"):
        line[f"bleu_difference_{part}"] = None if against is None else getattr(against, part)
    row = table3.read().rows[0] if variant is base else counterpart(variant, base)
    return line | _of_paper(row)


def _spread(figure: str, known: Estimate | None) -> dict[str, float | None]:
    return {
        f"{figure}_sd": None if known is None else known.deviation,
        f"{figure}_margin": None if known is None else known.margin,
        f"{figure}_n": 0 if known is None else known.n,
    }


def _of_paper(row: table3.Row | None) -> dict[str, Any]:
    base = table3.read().rows[0]
    result: dict[str, Any] = {"paper_row": None if row is None else row.name}
    for name in ("perplexity", "bleu", "parameters_millions"):
        value = None if row is None else getattr(row, name)
        # Two decimals are printed; a subtraction leaves more.
        change = None if value is None else round(value - getattr(base, name), 2)
        result |= {f"paper_{name}": value, f"paper_{name}_difference": change}
    return result
