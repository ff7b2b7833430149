"""The tables of a sweep as Markdown and as LaTeX."""

from __future__ import annotations

import re
from collections.abc import Sequence

from seq2sweep.report.table import Tables
from seq2sweep.report.text import MISSING

NONE_YET = (
    "No variants have been trained. To train some, set `sweep.method` in params.yaml, such as "
    "table3 or one_at_a_time, see `seq2sweep plan` for what that takes, then run `dvc repro`."
)

# --- Markdown ------------------------------------------------------------------------------------


def markdown(tables: Tables | None) -> str:
    """reports/table3.md; None where no sweep has been run."""
    lines = ["# Table 3, measured", ""]
    if tables is None:
        return "\n".join([*lines, NONE_YET, ""])
    lines += _markdown_table(tables.headings, [row.cells for row in tables.rows])
    lines += ["", *(f"- {note}" for note in tables.notes)]
    if tables.failures:
        lines += ["", "## Refused and failed", ""]
        lines += [f"- {_escape(name)}: {_escape(cause)}" for name, cause in tables.failures]
    if tables.findings:
        lines += ["", "## The paper's findings at this scale", ""]
        lines += [
            f"- {finding.claim[0].upper()}{finding.claim[1:]}: **{finding.verdict}**. "
            f"{_escape(finding.evidence)}."
            for finding in tables.findings
        ]
        lines += ["", *tables.finding_notes]
    if tables.comparisons:
        lines += ["", "## Beside the paper", ""]
        lines += _markdown_table(
            tables.comparison_headings, [row.cells for row in tables.comparisons]
        )
        lines += ["", *(f"- {note}" for note in tables.comparison_notes)]
    return "\n".join(lines) + "\n"


def _markdown_table(headings: Sequence[str], table: Sequence[Sequence[str]]) -> list[str]:
    """Columns padded to one width, so that the text reads as a table in a terminal too."""
    cells = [[_escape(cell) for cell in row] for row in (headings, *table)]
    widths = [max(3, *map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in cells]
    return [lines[0], "| " + " | ".join("-" * width for width in widths) + " |", *lines[1:]]


def _escape(text: str) -> str:
    for character in ("\\", "|", "`", "*", "<"):
        text = text.replace(character, "\\" + character)
    return text


# --- LaTeX ---------------------------------------------------------------------------------------

_LATEX = {
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
    "×": r"$\times$",
    "−": "$-$",
    "≈": r"$\approx$",
    "†": r"$\dagger$",
    "→": r"$\to$",
    "–": "--",
    "…": r"\dots{}",
    "\u202f": r"\,",
}
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
_RAISED = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


def latex(tables: Tables | None) -> str:
    """reports/table3.tex: a tabular for each table, to be taken in by \\input; needs booktabs."""
    if tables is None:
        return f"% {NONE_YET}\n"
    lines = ["% Needs \\usepackage{booktabs} and, before LaTeX of 2018, inputenc with utf8."]
    lines += _comments(tables.notes)
    lines += _tabular(tables.headings, [row.cells for row in tables.rows])
    if tables.comparisons:
        lines += ["", *_comments(["Beside the paper.", *tables.comparison_notes])]
        lines += _tabular(tables.comparison_headings, [row.cells for row in tables.comparisons])
    return "\n".join(lines) + "\n"


def _comments(notes: Sequence[str]) -> list[str]:
    return [f"% {' '.join(note.split())}" for note in notes]


def _tabular(headings: Sequence[str], table: Sequence[Sequence[str]]) -> list[str]:
    """Words to the left, figures to the right."""
    figures = [all(map(_is_figure, column)) for column in zip(*table, strict=True)]
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


def _is_figure(cell: str) -> bool:
    return re.match(rf"[<\d{MISSING}]|$", cell) is not None


def _escape_latex(text: str) -> str:
    escaped = "".join(_LATEX.get(character, character) for character in text)
    return re.sub(
        "[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+",
        lambda raised: f"$^{{{raised.group().translate(_RAISED)}}}$",
        escaped,
    ).replace("ε", r"$\epsilon$")
