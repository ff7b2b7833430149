"""The paper's tables as files: Markdown, CSV, LaTeX and HTML; and Table 3 of a sweep so."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from seq2sweep.config.scores import BLEU, Score
from seq2sweep.presets import table3
from seq2sweep.report import templates
from seq2sweep.report.aggregate import Against, Variant, aggregate, figures
from seq2sweep.report.markdown import Table, as_csv, escape, markdown_table, sections
from seq2sweep.report.number_format import MISSING
from seq2sweep.report.paper import SETTINGS, counterpart
from seq2sweep.report.table import NONE_YET, Tables, tables

_SAME_FOR_ALL_SEEDS = ("parameters", "flops")


def table_files(
    sweep: Mapping[str, Any] | None, dataset: str, vocabulary_size: int | None
) -> dict[str, str]:
    """The text of each file by its name, from reports/sweep.json; None where none has been run.

    dataset: what was translated, in words.
    """
    found = None if sweep is None else tables(sweep, dataset, vocabulary_size)
    return {
        "table3.md": markdown(found),
        "table3.csv": csv_text(sweep),
        "table3.tex": latex(found),
        "table3.html": templates.render(
            "table3.html", tables=found, dataset=dataset, none_yet=NONE_YET
        ),
    }


def paper_files(
    name: str,
    title: str,
    section: Mapping[str, Any],
    table: str,
    *,
    about: Sequence[str] = (),
    ending: Sequence[str] = (),
) -> dict[str, str]:
    """The text of each file of a table of the paper, by its name.

    section: its `tables`, and what else HTML shows; table: as CSV; about: sentences before the
    tables, where HTML has `where`; ending: what Markdown says after them.
    """
    lines = [f"# {title}", *(part for sentence in about for part in ("", sentence))]
    lines += [*sections(section["tables"]), *(part for said in ending for part in ("", said))]
    tex = [NEEDS, *comments(about)]
    for one in section["tables"]:
        tex += ["", *comments([f"{one.title}.", *one.notes]), *tabular(one.headings, one.rows)]
    return {
        f"{name}.md": "\n".join([*lines, ""]),
        f"{name}.csv": table,
        f"{name}.tex": "\n".join([*tex, ""]),
        f"{name}.html": templates.render("alone.html", title=title, section=section),
    }


# --- Markdown ------------------------------------------------------------------------------------


def markdown(tables: Tables | None) -> str:
    """reports/table3.md; None where no sweep has been run."""
    lines = ["# Table 3, measured", ""]
    if tables is None:
        return "\n".join([*lines, NONE_YET, ""])
    lines += markdown_table(tables.headings, [row.cells for row in tables.rows])
    lines += ["", *(f"- {note}" for note in tables.notes)]
    if tables.failures:
        lines += ["", "## Refused and failed", ""]
        lines += [f"- {escape(name)}: {escape(cause)}" for name, cause in tables.failures]
    if tables.findings:
        lines += ["", "## Published findings at this scale", ""]
        lines += [
            f"- {finding.claim[0].upper()}{finding.claim[1:]} ({finding.source}): "
            f"**{finding.verdict}**. {escape(finding.evidence)}."
            for finding in tables.findings
        ]
        lines += ["", *tables.finding_notes]
    lines += sections([tables.by_length] if tables.by_length else [])
    if tables.comparisons:
        cells = [row.cells for row in tables.comparisons]
        headings, notes = tables.comparison_headings, tables.comparison_notes
        lines += sections([Table("Beside the paper", headings, cells, notes)])
    return "\n".join(lines) + "\n"


# --- CSV -----------------------------------------------------------------------------------------


def csv_text(sweep: Mapping[str, Any] | None) -> str:
    """reports/table3.csv: a line a variant; an empty cell for what is not known.

    A figure that differs between seeds has four columns: its mean, `_sd` (n - 1), `_margin` (half
    the 95 % interval) and `_n`. `devices`: that `device_hours` are of; `shared_device`: others
    trained there at the same time, so that these hours count for each of them.
    `bleu_difference*`, of parsing `f1_difference*`, are as `difference_columns` says; `paper_*` are
    of the paper's row beside it, their `_difference` against the paper's base row. Without a sweep
    there is the line of headings alone.
    """
    variants = aggregate(sweep or {"base": {"model": {}, "train": {}}, "trials": []})
    lines = [_csv_line(variant, variants[0]) for variant in variants]
    return as_csv(lines if sweep else [], lines[0])


def _csv_line(variant: Variant, base: Variant) -> dict[str, Any]:
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
    for figure in figures(variant.score):
        known = variant.figures[figure]
        line[figure] = known and known.mean
        if figure not in _SAME_FOR_ALL_SEEDS:
            line[f"{figure}_sd"] = known and known.deviation
            line[f"{figure}_margin"] = known and known.margin
            line[f"{figure}_n"] = known.n if known else 0
    line["devices"] = ", ".join(variant.devices)
    line["shared_device"] = variant.shared
    line |= difference_columns(variant.score, variant.against)
    printed = table3.read().rows[0]
    row = counterpart(variant, base)
    line["paper_row"] = row and row.name
    for name in ("perplexity", *["bleu"] * (variant.score == BLEU), "parameters_millions"):
        value = row and getattr(row, name)
        # Two decimals are printed; a subtraction leaves more.
        change = None if value is None else round(value - getattr(printed, name), 2)
        line |= {f"paper_{name}": value, f"paper_{name}_difference": change}
    return line


def difference_columns(score: Score, against: Against | None) -> dict[str, Any]:
    """Of a score less the base row's: `_margin` is of the seeds (Welch's), `_p`, `_low` and `_high`
    of the bootstrap over sentences, `_seen` of both."""
    name = f"{score.name}_difference"
    columns: dict[str, Any] = {name: against and against.difference.mean}
    columns[f"{name}_margin"] = against and against.difference.margin
    parts = ("p", "low", "high", "seen")
    return columns | {f"{name}_{part}": against and getattr(against, part) for part in parts}


# --- LaTeX ---------------------------------------------------------------------------------------

_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "{": r"\{",
        "}": r"\}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        **{character: "\\" + character for character in "&%$#_"},
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        "`": r"\textasciigrave{}",
        "±": r"$\pm$",
        "·": r"$\cdot$",
        "×": r"$\times$",
        "−": "$-$",
        "≈": r"$\approx$",
        "≤": r"$\leq$",
        "†": r"$\dagger$",
        "→": r"$\to$",
        "–": "--",
        "…": r"\dots{}",
        "\u202f": r"\,",
        "α": r"$\alpha$",
        "ε": r"$\epsilon$",
    }
)
_SYMBOLS = {
    "N": "$N$",
    "d_model": r"$d_{\mathrm{model}}$",
    "d_ff": r"$d_{\mathrm{ff}}$",
    "h": "$h$",
    "d_k": "$d_k$",
    "d_v": "$d_v$",
    "P_drop": r"$P_{drop}$",
    "ε_ls": r"$\epsilon_{ls}$",
}
NEEDS = "% Needs \\usepackage{booktabs} and, before LaTeX of 2018, inputenc with utf8."
_RAISED = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


def latex(tables: Tables | None) -> str:
    """reports/table3.tex: a tabular for each table, to be taken in by \\input; needs booktabs."""
    if tables is None:
        return f"% {NONE_YET}\n"
    lines = [NEEDS, *comments(tables.notes)]
    lines += tabular(tables.headings, [row.cells for row in tables.rows])
    if tables.comparisons:
        lines += ["", *comments(["Beside the paper.", *tables.comparison_notes])]
        lines += tabular(tables.comparison_headings, [row.cells for row in tables.comparisons])
    return "\n".join(lines) + "\n"


def comments(notes: Sequence[str]) -> list[str]:
    return [f"% {' '.join(note.split())}" for note in notes]


def tabular(headings: Sequence[str], table: Sequence[Sequence[str]]) -> list[str]:
    """Words to the left, figures to the right."""
    figure = re.compile(rf"[<\d{MISSING}]|$")
    figures = [all(map(figure.match, column)) for column in zip(*table, strict=True)]
    heads = [_SYMBOLS.get(heading) or _escape_latex(heading) for heading in headings]
    body = [" & ".join(map(_escape_latex, row)) + r" \\" for row in table]
    return [
        r"\begin{tabular}{" + "".join("r" if figure else "l" for figure in figures) + "}",
        r"\toprule",
        " & ".join(heads) + r" \\",
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
    ]


def _escape_latex(text: str) -> str:
    return re.sub(
        "[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+",
        lambda raised: f"$^{{{raised.group().translate(_RAISED)}}}$",
        text.translate(_LATEX),
    )
