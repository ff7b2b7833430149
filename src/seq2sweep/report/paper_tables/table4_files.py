"""Table 4 as files: Markdown, CSV, LaTeX and HTML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seq2sweep.presets.parsers import ROWS
from seq2sweep.report.formats import as_csv, paper_files
from seq2sweep.report.paper_tables.table4 import (
    FLOORS,
    OURS,
    TITLE,
    UNCONSTRAINED,
    Parser,
    margin_of,
    section,
)

SCORES = ("f1", "precision", "recall", "complete")
COLUMNS = (
    "of",
    "parser",
    "training",
    *SCORES,
    "f1_margin",
    "f1_short",
    "dataset",
    "comparable",
    "layers",
    "d_model",
    "parameters",
    "beam",
    "alpha",
    "constrained",
    "sentences",
    "errors",
    "skipped",
    "malformed",
)


def table4_files(parser: Parser | None) -> dict[str, str]:
    """The text of each file by its name; None where nothing was parsed."""
    shown = section(parser)
    return paper_files("table4", TITLE, shown, _csv(parser), about=[shown["where"]])


def _csv(parser: Parser | None) -> str:
    """A line a parser, ours first; an empty cell for what is not known."""
    printed = [
        {"of": "paper", "parser": row.parser, "training": row.training, "f1": row.f1}
        for row in ROWS
    ]
    return as_csv([*(_lines(parser) if parser else []), *printed], COLUMNS)


def _lines(parser: Parser) -> list[dict[str, Any]]:
    all_have = {"of": "measured", "dataset": parser.dataset, "comparable": parser.standard}
    lines = [all_have | line for of in parser.scored for line in _of_training(parser, *of)]
    for name, scores in (parser.evaluate.get("floors") or {}).items():
        lines.append(all_have | {"parser": FLOORS.get(name, name)} | _scores(scores))
    return lines


def _of_training(
    parser: Parser, trained_on: str, evaluate: Mapping[str, Any]
) -> list[dict[str, Any]]:
    model = parser.model or {}
    system = {
        "training": trained_on,
        **{key: model.get(key) for key in ("layers", "d_model")},
        "parameters": parser.parameters,
        **{key: evaluate[key] for key in ("beam", "alpha")},
    }
    counts = {key: evaluate[key] for key in ("sentences", "errors", "skipped")}
    malformed = (evaluate.get("well_formed") or {}).get("malformed")
    ours = {"parser": OURS, "f1_margin": margin_of(evaluate), "constrained": True, **counts}
    lines = [system | ours | {"malformed": malformed} | _scores(evaluate)]
    if free := evaluate.get("unconstrained"):
        more = {"parser": UNCONSTRAINED, "constrained": False, "malformed": free["malformed"]}
        lines.append(system | more | _scores(free))
    return lines


def _scores(scores: Mapping[str, Any]) -> dict[str, Any]:
    short = (scores.get("short") or {}).get("f1")
    return {name: scores.get(name) for name in SCORES} | {"f1_short": short}
