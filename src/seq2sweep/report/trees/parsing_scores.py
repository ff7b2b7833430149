"""What the page says of a parser's scores, from metrics/evaluate.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from seq2sweep.evaluate.brackets import left_out
from seq2sweep.report import samples
from seq2sweep.report.number_format import fixed, percent, whole
from seq2sweep.report.paper_tables import table4
from seq2sweep.report.trees import tree_samples

REPAIRS = {
    "mislabelled": "closed by another label",
    "unopened": "closed but not open",
    "unclosed": "not closed",
    "empty": "around no word",
    "extra_words": "more words than the sentence",
    "missing_words": "fewer words than the sentence",
    "unknown": "unknown symbols",
}


def context(parser: table4.Parser, rows: Sequence[samples.Translation]) -> dict[str, Any]:
    """What parsing.html needs beside what page.html does. rows: of reports/translations.tsv."""
    evaluate = parser.evaluate
    return {
        "parser": parser,
        "alarm": _alarm(evaluate),
        "f1_of_short": table4.f1_of_short(evaluate),
        "floors": [
            (name.replace("_", "-"), fixed(scores["f1"], 1))
            for name, scores in (evaluate.get("floors") or {}).items()
        ],
        "by_label": [
            (label, whole(one["gold"]), *(fixed(one[k], 1) for k in ("f1", "precision", "recall")))
            for label, one in evaluate["by_label"].items()
        ],
        "trees": tree_samples.choose(rows),
        "table4": table4.section(parser),
    }


def facts(evaluate: Mapping[str, Any]) -> dict[str, str]:
    """The rest of the figures, name to value."""
    found = {
        "Crossing brackets a sentence": fixed(evaluate["average_crossing"], 2),
        "Without crossing brackets": f"{fixed(evaluate['no_crossing'], 1)}\u202f%",
        "With two or less": f"{fixed(evaluate['two_or_less_crossing'], 1)}\u202f%",
    }
    well_formed = evaluate.get("well_formed")
    if well_formed:
        found["Malformed, constrained"] = whole(well_formed["malformed"])
        found["Cut at the longest length"] = whole(well_formed["cut"])
    free = evaluate.get("unconstrained")
    if free:
        share = free["malformed"] / evaluate["sentences"] if evaluate["sentences"] else None
        kinds = [f"{REPAIRS.get(k, k)} {whole(n)}" for k, n in free["repairs"].items() if n]
        found["Malformed, unconstrained"] = f"{whole(free['malformed'])} ({percent(share)})"
        found["Cut, unconstrained"] = whole(free["cut"])
        found["Repairs, unconstrained"] = ", ".join(kinds) or "none"
    return found


def _alarm(evaluate: Mapping[str, Any]) -> str:
    """What is wrong with F1 itself; empty where every sentence counts."""
    errors, skipped, lost = evaluate["errors"], evaluate["skipped"], left_out(evaluate)
    if not lost:
        return ""
    lines = ", ".join(whole(line) for line in evaluate["error_lines"])
    more = " and more" if lost > len(evaluate["error_lines"]) else ""
    return (
        f"F1 is not to be trusted. Of {whole(evaluate['sentences'])} sentences, errors: "
        f"{whole(errors)}, skipped: {whole(skipped)}. Their trees have other words than gold’s, or "
        "none, and EVALB leaves such sentences out of every sum, so that F1 comes out too high. "
        f"Sentences: {lines}{more}."
    )
