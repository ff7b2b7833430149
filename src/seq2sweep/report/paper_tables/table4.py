"""Table 4 of the paper: its twelve rows, and the parser that was trained here beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from seq2sweep.evaluate.brackets import left_out
from seq2sweep.presets.parsers import ROWS, SEMI_SUPERVISED, TEST_TREES, TRAIN_TREES
from seq2sweep.report.formats import paper_files
from seq2sweep.report.markdown import Table, as_csv
from seq2sweep.report.number_format import (
    MISSING,
    decoding,
    fixed,
    millions,
    p_value,
    plain,
    signed,
    whole,
)

TITLE = "Table 4, measured"
RIVALS = {"recurrent": "GNMT", "convolutional": "ConvS2S", "bytenet": "ByteNet"}
"""What `model.architecture` is called where it is not the paper's own."""
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
SCORES = ("f1", "precision", "recall", "complete")
CSV_COLUMNS = (
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
    "length_penalty",
    "constrained",
    "sentences",
    "errors",
    "skipped",
    "malformed",
)
OWN = "this treebank only"
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
OTHER_TEXT = "The semi-supervised parser had other sentences than the paper's, and is not."


@dataclass(frozen=True)
class Parser:
    """What was trained and scored.

    evaluate: metrics/evaluate.json; model: the settings of the model, None where they are unknown;
    parameters: how many it has; dataset: as `data.dataset`; standard: whether it is the Penn
    Treebank with the paper's sections, and all of their trees. student:
    metrics/semi_supervised.json, of the same model taught by two, and silver: metrics/silver.json,
    what it was taught; None without self-training. training: what the parser was trained on, in
    words.
    """

    evaluate: Mapping[str, Any]
    model: Mapping[str, Any] | None
    parameters: int
    dataset: str
    standard: bool
    student: Mapping[str, Any] | None = None
    silver: Mapping[str, Any] | None = None
    training: str = OWN

    @property
    def scored(self) -> list[tuple[str, Mapping[str, Any]]]:
        """What each parser was trained on, and its scores."""
        found = [(self.training, self.evaluate)]
        return found if self.student is None else [*found, (SEMI_SUPERVISED, self.student)]

    @property
    def name(self) -> str:
        """Of the model, as one of ours."""
        return f"{architecture_name(self.model)} (ours)"


def architecture_name(model: Mapping[str, Any] | None) -> str:
    """What a model with these settings is called; the paper's own where they are unknown."""
    settings = model if isinstance(model, Mapping) else {}
    name = str(settings.get("architecture") or "transformer")
    return "Transformer" if name == "transformer" else RIVALS.get(name, name)


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
    return as_csv([*(_lines(parser) if parser else []), *printed], CSV_COLUMNS)


def _lines(parser: Parser) -> list[dict[str, Any]]:
    """What is known, by CSV_COLUMNS, of each training, searched among well-formed trees and, where
    that was done, among all; then of the floors."""
    model, lines = parser.model or {}, []
    for trained_on, evaluate in parser.scored:
        system = {
            "training": trained_on,
            "comparable": parser.standard and trained_on != SEMI_SUPERVISED,
            **{key: model.get(key) for key in ("layers", "d_model")},
            "parameters": parser.parameters,
            **{key: evaluate[key] for key in ("beam", "alpha")},
            "length_penalty": evaluate.get("length_penalty", "paper"),
        }
        ours = {
            "parser": parser.name,
            "f1_margin": (evaluate.get("confidence") or {}).get("margin"),
            "constrained": True,
            **{key: evaluate[key] for key in ("sentences", "errors", "skipped")},
            "malformed": (evaluate.get("well_formed") or {}).get("malformed"),
        }
        lines.append(system | ours | _scores(evaluate))
        if free := evaluate.get("unconstrained"):
            more = {
                "parser": f"{parser.name}, unconstrained",
                "constrained": False,
                "malformed": free["malformed"],
            }
            lines.append(system | more | _scores(free))
    for name, scores in (parser.evaluate.get("floors") or {}).items():
        floor = {"parser": FLOORS.get(name, name), "comparable": parser.standard}
        lines.append(floor | _scores(scores))
    return [{"of": "measured", "dataset": parser.dataset} | line for line in lines]


def _scores(scores: Mapping[str, Any]) -> dict[str, Any]:
    short = f1_of_short(scores)
    known = {name: scores.get(name) for name in SCORES}
    return known | {"f1": scores["f1"], "f1_short": short}


def f1_of_short(scores: Mapping[str, Any]) -> float | None:
    """F1 of sentences of at most 40 words; None where none of them counts."""
    short = scores.get("short") or {}
    counted = short.get("sentences", 0) - short.get("errors", 0) - short.get("skipped", 0)
    return short.get("f1") if counted > 0 else None


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
        return COMPARABLE if parser.student is None else f"{COMPARABLE} {OTHER_TEXT}"
    return (
        f"Not comparable: what is printed is of section 23 of the WSJ ({TEST_TREES:,} trees) after "
        f"training on sections 02–21 ({TRAIN_TREES:,} trees), what is measured of the test set of "
        f"{parser.dataset}."
    )


def _measured(parser: Parser) -> Table:
    rows = [_row(line) for line in _lines(parser)]
    return Table("Measured", MEASURED, rows, _notes(parser), (1, 2, 6))


def _row(line: Mapping[str, Any]) -> tuple[str, ...]:
    """One of `_lines`, rounded; a dash for what is not known. A floor is of no system."""
    system, margin = [MISSING] * 6, line.get("f1_margin")
    if "training" in line:
        sizes = (line["layers"], line["d_model"])
        system = [
            line["training"],
            line["dataset"],
            *(MISSING if size is None else plain(size) for size in sizes),
            millions(line["parameters"]),
            decoding(line),
        ]
    return (
        line["parser"],
        *system,
        fixed(line["f1"], 1) + ("" if margin is None else f" ± {fixed(margin, 1)}"),
        *(fixed(line[name], 1) for name in ("precision", "recall", "complete", "f1_short")),
    )


def _notes(parser: Parser) -> list[str]:
    evaluate = parser.evaluate
    wrong = any(left_out(one) for _, one in parser.scored)
    counts = "; ".join(
        f"{whole(one['errors'])} errors, {whole(one['skipped'])} skipped"
        + f" ({trained_on})" * (parser.student is not None)
        for trained_on, one in parser.scored
    )
    notes = [
        ("F1 is not to be trusted. " if wrong else "")
        + f"Of {whole(evaluate['sentences'])} sentences: {counts}. EVALB leaves these out of every "
        "sum; both must be 0, but for sentences of punctuation alone. Scored as "
        f"`{evaluate['signature']}`; ± is half of a 95 % bootstrap interval.",
    ]
    for trained_on, one in parser.scored:
        if free := one.get("unconstrained"):
            named = f" ({trained_on})" * (parser.student is not None)
            notes.append(
                "Our beam search allows only well-formed trees over the sentence's words. The "
                f"paper's did not: unconstrained{named}, {whole(free['malformed'])} outputs needed "
                f"a repair and {whole(free['cut'])} reached the longest length. Constrained less "
                f"unconstrained: {signed(free['difference'], 2)} F1."
            )
    if parser.student is not None and parser.silver is not None:
        notes.append(_gain(parser.student["gain"], parser.silver))
    if evaluate.get("floors"):
        notes.append("Floors: what a tree that looks at no word scores on the same sentences.")
    return notes


def _gain(gain: Mapping[str, Any], silver: Mapping[str, Any]) -> str:
    """What the student has more than the first parser, and what it was taught."""
    verdict = "a difference" if gain["seen"] else "not told from chance"
    return (
        f"Semi-supervised: trained on {whole(silver['gold'])} trees of the treebank and "
        f"{whole(silver['agreed'])} that two parsers, of other seeds, agreed on, of "
        f"{whole(silver['parsed'])} sentences without trees that they parsed. Gain over the first "
        f"of them: {signed(gain['f1_difference'], 2)} F1 (95 % {signed(gain['low'], 2)} to "
        f"{signed(gain['high'], 2)}, paired bootstrap, p {p_value(gain['p'])}: {verdict})."
    )
