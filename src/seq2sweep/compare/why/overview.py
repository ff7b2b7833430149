"""What was found, as text for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from seq2sweep.compare.why.waterfall import SEEN
from seq2sweep.console import columns
from seq2sweep.report.number_format import fixed, signed


def overview(found: Mapping[str, Any]) -> str:
    """What `explain` returns."""
    return "\n\n".join("\n".join(section) for section in _sections(found) if section)


def _sections(found: Mapping[str, Any]) -> Iterator[list[str]]:
    test_set = found["test_set"] or "no test set whose sha256 is known"
    yield [
        f"{found['name']}: BLEU {fixed(found['bleu'], 2)} ({found['signature']})",
        f"The {found['sentences']} references are {test_set}{_of_lines(found)}.",
    ]
    yield columns([*_rows(found)], "<>><") if found["steps"] or found["against"] else []
    yield [*_remarks(found)]
    reasons: dict[str, list[str]] = {}
    for name, why in found["not_tested"].items():
        reasons.setdefault(why, []).append(name)
    yield ["Not tested:", *(f"- {', '.join(names)}: {why}" for why, names in reasons.items())]


def _of_lines(found: Mapping[str, Any]) -> str:
    lines = found["translations"]
    return "" if lines == found["sentences"] else f"; there are {lines} translations"


def _rows(found: Mapping[str, Any]) -> Iterator[list[str]]:
    yield ["cause", "share", "BLEU", ""]
    yield ["as given", "", fixed(found["bleu"], 2), ""]
    bleu = found["bleu"]
    for step in found["steps"]:
        bleu = step["bleu"]
        yield [step["cause"], _share(step), fixed(bleu, 2), step["evidence"]]
    goal = found["against"]
    if goal is None:
        return
    yield ["left", signed(goal["left"], 2), fixed(bleu + goal["left"], 2), "not explained"]
    for step in reversed(goal["steps"]):
        bleu_before = step["bleu"] - step["share"]
        shown = _share({**step, "share": -step["share"]})
        yield [step["cause"], shown, fixed(bleu_before, 2), f"there: {step['evidence']}"]
    yield [goal["name"], "", fixed(goal["bleu"], 2), ""]


def _share(step: Mapping[str, Any]) -> str:
    return ("≈ " if step["estimate"] else "") + signed(step["share"], 2)


def _remarks(found: Mapping[str, Any]) -> Iterator[str]:
    if not found["steps"]:
        yield "Nothing was found."
    if any(step["estimate"] for step in found["steps"]):
        yield "≈: what the text was is lost; the share is an estimate by the references."
    if found["not_found"]:
        yield f"Tested, and less than {SEEN} BLEU: {', '.join(found['not_found'])}."
