"""Table 4 of the paper: its twelve rows, and the parser that was trained here beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from seq2sweep.presets.parsers import ROWS, SEMI_SUPERVISED
from seq2sweep.report.number_format import MISSING, fixed, millions, plain, signed, whole
from seq2sweep.report.paper_tables.table1 import Table

TITLE = "Table 4, measured"
OURS = "Transformer (ours)"
UNCONSTRAINED = f"{OURS}, unconstrained"
PRINTED = ("parser", "training", "F1 (WSJ 23)")
MEASURED = (
    "parser",
    "training",
    "data set",
    "layers",
    "d_model",
    "params ×10⁶",
    "decoding",
    "F1",
    "precision",
    "recall",
    "complete",
    "F1 ≤ 40 words",
)
TRAINED_ON = {"own": "this treebank only", "semi_supervised": SEMI_SUPERVISED}
FLOORS = {
    "flat": "floor: one S around all words",
    "right_branching": "floor: right-branching",
}
NOT_PARSED = "Nothing was parsed: set `data.target: trees` in params.yaml."
PRINTED_NOTES = (
    "F1 on section 23 of the WSJ as printed. The Transformer has 4 layers and d_model 1024 there, "
    "and decodes with beam 21 and α 0.3 (section 6.3).",
)
COMPARABLE = (
    "Trained and scored on the sections of the WSJ that the paper names (02–21, 23): the two "
    "tables are comparable."
)


@dataclass(frozen=True)
class Parser:
    """What was trained and scored.

    evaluate: metrics/evaluate.json; model: the settings of the model, None where they are unknown;
    parameters: how many it has; dataset: as `data.dataset`; standard: whether it is the Penn
    Treebank with the paper's sections.
    """

    evaluate: Mapping[str, Any]
    model: Mapping[str, Any] | None
    parameters: int
    dataset: str
    standard: bool

    @property
    def training(self) -> str:
        return TRAINED_ON[self.evaluate.get("training", "own")]

    @property
    def margin(self) -> float | None:
        """Half of the bootstrap's 95 % interval of F1."""
        confidence = self.evaluate.get("confidence") or {}
        return confidence.get("margin")


def section(parser: Parser | None) -> dict[str, Any]:
    """What the page shows: `where`, `tables` and `plots`. None: nothing was parsed."""
    return {"where": where(parser), "tables": tables(parser), "plots": []}


def tables(parser: Parser | None) -> list[Table]:
    """The one measured, where there is one, and the paper's."""
    rows = [(row.parser, row.training, fixed(row.f1, 1)) for row in ROWS]
    printed = Table("As printed", PRINTED, rows, PRINTED_NOTES, (1,))
    return [printed] if parser is None else [_measured(parser), printed]


def where(parser: Parser | None) -> str:
    """Whether what was measured may be compared with what is printed."""
    if parser is None:
        return NOT_PARSED
    if parser.standard:
        return COMPARABLE
    return (
        f"Not comparable: what is printed is of section 23 of the WSJ after training on sections "
        f"02–21, what is measured of the test set of {parser.dataset}."
    )


def _measured(parser: Parser) -> Table:
    evaluate, model = parser.evaluate, parser.model or {}
    margin = f" ± {fixed(parser.margin, 1)}" if parser.margin is not None else ""
    system = (
        parser.training,
        parser.dataset,
        *(plain(model.get(key, MISSING)) for key in ("layers", "d_model")),
        millions(parser.parameters),
    )
    decoding = f"beam {plain(evaluate['beam'])}, α {plain(evaluate['alpha'])}"
    rows = [(OURS, *system, decoding, *_scores(evaluate, margin))]
    free = evaluate.get("unconstrained")
    if free:
        rows.append((UNCONSTRAINED, *system, decoding, *_scores(free)))
    for name, scores in (evaluate.get("floors") or {}).items():
        about = FLOORS.get(name, name)
        rows.append((about, *[MISSING] * 6, *_scores(scores)))
    return Table("Measured", MEASURED, rows, _notes(parser), (1, 2, 6))


def _scores(scores: Mapping[str, Any], margin: str = "") -> tuple[str, ...]:
    """F1, precision, recall, complete match, F1 of short sentences; a dash for what is unknown."""
    return (
        fixed(scores["f1"], 1) + margin,
        *(fixed(scores.get(name), 1) for name in ("precision", "recall", "complete")),
        fixed((scores.get("short") or {}).get("f1"), 1),
    )


def _notes(parser: Parser) -> list[str]:
    evaluate = parser.evaluate
    counts = [evaluate["errors"], evaluate["skipped"]]
    notes = [
        ("F1 is not to be trusted. " if any(counts) else "")
        + f"Of {whole(evaluate['sentences'])} sentences: {whole(counts[0])} errors, "
        f"{whole(counts[1])} skipped, which EVALB leaves out of every sum; both must be 0. Scored "
        f"as `{evaluate['signature']}`; ± is half of a 95 % bootstrap interval.",
    ]
    free = evaluate.get("unconstrained")
    if free:
        notes.append(
            "The first row's beam search allows only well-formed trees over the sentence's words. "
            f"The paper's did not: unconstrained, {whole(free['malformed'])} outputs needed a "
            f"repair and {whole(free['cut'])} reached the longest length. Constrained less "
            f"unconstrained: {signed(free['difference'], 2)} F1."
        )
    if evaluate.get("floors"):
        notes.append("Floors: what a tree that looks at no word scores on the same sentences.")
    return notes
