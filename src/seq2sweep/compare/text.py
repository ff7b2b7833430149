"""A comparison as text for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from seq2sweep.config.scores import Score
from seq2sweep.console import columns
from seq2sweep.report.number_format import MISSING, fixed, signed

UNKNOWN = "unknown"
SHORT = 12
"""Characters of a commit or fingerprint that tell it from others."""


def text(comparison: Mapping[str, Any]) -> str:
    """What `comparison.compare` found."""
    sections = [
        _names(comparison),
        "\n".join(_differences(comparison)),
        _scores(comparison),
        _ending(comparison),
    ]
    return "\n\n".join(section for section in sections if section)


def _names(comparison: Mapping[str, Any]) -> str:
    lines = [
        f"{letter}  {comparison[key]['name']}  ({comparison[key]['about']})"
        for letter, key in (("A", "a"), ("B", "b"))
    ]
    return "\n".join([*lines, *(f"   {remark}" for remark in comparison["remarks"])])


def _differences(comparison: Mapping[str, Any]) -> Iterator[str]:
    rows = [
        [key, *(_value(value, section) for value in values)]
        for section in ("parameters", "code", "data")
        for key, values in comparison[section].items()
    ]
    if rows:
        yield from columns([["", "A", "B"], *rows])
    same = [section for section in ("parameters", "code", "data") if not comparison[section]]
    if same:
        yield f"No difference in {', '.join(same)}."
    if "git.dirty" in comparison["code"]:
        yield "A commit is not all of the code where git.dirty is not false."


def _value(value: Any, section: str) -> str:
    if section != "parameters":
        return UNKNOWN if value is None else str(value)[:SHORT]
    if value is None:
        return MISSING
    return str(value).lower() if isinstance(value, bool) else str(value)


def _scores(comparison: Mapping[str, Any]) -> str:
    scores = [comparison[key]["scores"] for key in ("a", "b")]
    if not any(scores):
        return ""
    score = Score.of(comparison)
    rows = [["", "A", "B"], ["scored on", *map(_test_set, scores)]]
    for figure, name in {**score.metrics, "perplexity": "perplexity"}.items():
        decimals = 3 if figure == "perplexity" else 2
        shown = [UNKNOWN if s is None else fixed(s[figure], decimals) for s in scores]
        rows.append([name, *shown])
    trained = [s and s[f"{score.name}_of_each"] for s in scores]
    if any(each and len(each) > 1 for each in trained):
        each_seed = [" ".join(fixed(v, 2) for v in each) if each else UNKNOWN for each in trained]
        rows.append([f"{score.label} of each seed", *each_seed])
    signatures = [s and s["signature"] for s in scores]
    lines = columns(rows)
    named = dict.fromkeys(signature for signature in signatures if signature)
    if len(named) == 1:
        lines.append(f"{score.label} is {next(iter(named))}")
    else:
        lines += [
            f"{score.label} of {letter} is {s}" for letter, s in zip("AB", signatures, strict=True)
        ]
    if (vocabularies := comparison["data"].get("data.vocabulary")) is not None:
        lines.append(
            "Perplexities may not compare: the vocabulary of one is unknown."
            if None in vocabularies
            else "Perplexities do not compare: each is per piece of its own vocabulary."
        )
    return "\n".join(lines)


def _test_set(scores: Mapping[str, Any] | None) -> str:
    if scores is None or scores["test_set"] is None:
        return UNKNOWN
    return str(scores["test_set"]["split"])


def _ending(comparison: Mapping[str, Any]) -> str:
    lines, score = [], Score.of(comparison)
    found = comparison["difference"]
    if found is not None:
        lines.append(f"B less A: {signed(found[score.name], 2)} {score.label}")
        if found["p"] is not None:
            low, high = signed(found["low"], 2), signed(found["high"], 2)
            lines[0] += f", 95 % interval {low} to {high} (paired bootstrap)"
    lines.append(comparison["conclusion"])
    each = f"{score.name}_of_each"
    trained = [len(s[each]) for key in ("a", "b") if (s := comparison[key]["scores"])]
    if found is not None and found["p"] is not None and 1 in trained:
        lines.append(
            "That is about the choice of sentences; what another seed would change is not in it."
        )
    return "\n".join(lines)
