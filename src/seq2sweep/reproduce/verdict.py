"""Two records of one run compared: identical, equal to n digits, or from which step on not."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seq2sweep import console

MOST_CAUSES = 8
"""Shown to people; JSON has all."""
CLOSE_DIGITS = 3
"""From so many on two runs are called equal to that many digits: 0.1 % and nearer."""
LIBRARIES = ("torch", "numpy", "ray", "sentencepiece", "sacrebleu")
"""Named first of the packages that differ: these compute."""
LONG = 60
"""Characters of a text of which only the words that differ are shown."""
EXACT = math.inf


@dataclass(frozen=True)
class Part:
    """What is compared: the weights, a curve or a score.

    digits: in how many leading ones all its numbers agree; inf: they are identical. first_step: of
    the first one that differs. is_sum: sums say whether two are the same, and not how near.
    """

    name: str
    recorded: str
    again: str
    digits: float
    first_step: int | None = None
    is_sum: bool = False

    @property
    def words(self) -> str:
        """How the two compare."""
        if self.digits == EXACT:
            return "identical"
        near = self.digits >= CLOSE_DIGITS
        how = f"equal to {self.digits:.0f} digits" if near else "differs"
        return how + ("" if self.first_step is None else f", first at step {self.first_step}")


@dataclass(frozen=True)
class Verdict:
    """How a run that was made again compares; causes: all that is known to differ."""

    parts: list[Part]
    causes: list[str]
    remarks: list[str] = field(default_factory=list)

    @property
    def identical(self) -> bool:
        """Whether all that is compared is, to the last bit."""
        return bool(self.parts) and all(part.digits == EXACT for part in self.parts)

    @property
    def digits(self) -> int | None:
        """In how many leading ones all numbers agree; None where they are the same."""
        near = min((part.digits for part in self.parts if not part.is_sum), default=EXACT)
        return None if near == EXACT else int(near)

    @property
    def first_step(self) -> int | None:
        """The first step of which a number differs."""
        return min((p.first_step for p in self.parts if p.first_step is not None), default=None)

    @property
    def words(self) -> str:
        """In one line."""
        if self.identical:
            return "identical"
        if not self.parts:
            return "nothing could be compared"
        at = "" if self.first_step is None else f" from step {self.first_step} on"
        if self.digits is None:
            return f"differs{at}, though its numbers are the same"
        if self.digits >= CLOSE_DIGITS:
            return f"equal to {self.digits} digits, not identical{at}"
        return f"differs{at}"

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "verdict": self.words,
            "identical": self.identical,
            "digits": self.digits,
            "first_step": self.first_step,
            "causes": self.causes,
            "remarks": self.remarks,
            "parts": {
                part.name: {
                    "recorded": part.recorded,
                    "again": part.again,
                    "verdict": part.words,
                    "first_step": part.first_step,
                }
                for part in self.parts
            },
        }

    def lines(self) -> Iterator[str]:
        """A table for people."""
        rows = [("", "recorded", "made again", "")]
        rows += [(p.name, _short(p.recorded), _short(p.again), p.words) for p in self.parts]
        yield from console.columns(rows)
        yield from self.remarks
        yield f"verdict: {self.words}"
        if self.causes:
            yield "what differs besides:" if self.identical else "possible causes:"
            yield from (f"  {cause}" for cause in self.causes[:MOST_CAUSES])
            if (more := len(self.causes) - MOST_CAUSES) > 0:
                yield f"  and {more} more (--json names all)"
        elif self.parts and not self.identical:
            yield (
                "possible causes: none that is recorded, as code, data, libraries, processor, "
                "threads and workers are the same; a GPU wants train.deterministic"
            )


def compare(recorded: Mapping[str, Any], again: Mapping[str, Any]) -> list[Part]:
    """Parts of two outcomes, as record.json has them: weights, then curves, then scores."""
    parts = []
    if not recorded["stopped_early"] and recorded["weights"]:
        parts.append(_weights(recorded["weights"], again["weights"]))
    for name, points in recorded["curves"].items():
        other = again["curves"].get(name, [])
        if recorded["stopped_early"]:
            points = _kept_of_both(points, other)
        parts.append(_curve(name, points, other))
    if not recorded["stopped_early"]:
        for name, value in recorded["scores"].items():
            other = again["scores"].get(name)
            if isinstance(value, str) or isinstance(other, str):
                same = EXACT if value == other else 0.0
                parts.append(Part(name, str(value), str(other), same, is_sum=True))
            else:
                parts.append(Part(name, _number(value), _number(other), digits(value, other)))
    return parts


def _weights(recorded: Mapping[str, str], again: Mapping[str, str]) -> Part:
    """sha256 of each checkpoint that was kept, by step."""
    unlike = sorted((step for step in recorded if again.get(step) != recorded[step]), key=int)
    shown = unlike[0] if unlike else max(recorded, key=int)
    return Part(
        f"weights of step{'s' * (len(recorded) > 1)} {', '.join(sorted(recorded, key=int))}",
        recorded[shown],
        again.get(shown, "not kept"),
        0.0 if unlike else EXACT,
        int(unlike[0]) if unlike else None,
        is_sum=True,
    )


def _kept_of_both(recorded: Sequence[Any], again: Sequence[Any]) -> Sequence[Any]:
    """Recorded points without those that the whole training's longer curve was thinned of: those
    before its end that it does not have."""
    steps = {step for step, _ in again}
    end = max(steps, default=0)
    return [point for point in recorded if point[0] in steps or point[0] > end] or recorded


def _curve(name: str, recorded: Sequence[Any], again: Sequence[Any]) -> Part:
    """Values by step, at the steps that the record has."""
    found = dict(map(tuple, again))
    pairs = [(step, value, found.get(step)) for step, value in recorded]
    unlike = [step for step, one, other in pairs if digits(one, other) != EXACT]
    shown = unlike[0] if unlike else pairs[-1][0]
    (one, other) = next((one, other) for step, one, other in pairs if step == shown)
    return Part(
        f"{name} at {len(pairs)} steps",
        f"{_number(one)} at {shown}",
        f"{_number(other)} at {shown}",
        min(digits(one, other) for _, one, other in pairs),
        unlike[0] if unlike else None,
    )


def digits(one: float | None, other: float | None) -> float:
    """In how many leading decimal digits two numbers agree, by their relative difference.

    inf: they are the same, or both are none.
    """
    if one == other:
        return EXACT
    if one is None or other is None:
        return 0.0
    try:
        relative = abs(one - other) / max(abs(one), abs(other))
    except OverflowError:  # of a whole number that no float holds
        return 0.0
    if not 0 < relative < math.inf:  # of numbers near the end of what floats hold
        return 0.0
    return float(max(0, math.floor(-math.log10(relative))))


def parts_of(pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> list[Part]:
    """Parts of pairs of records, each of a run and of that run made again; each name once."""
    found: dict[str, Part] = {}
    for recorded, again in pairs:
        for part in compare(recorded["outcome"], again["outcome"]):
            found.setdefault(part.name, part)
    return list(found.values())


def causes(recorded: Mapping[str, Any], again: Mapping[str, Any]) -> list[str]:
    """What differs between two records besides what came out, what matters most first.

    Each is a record.json, with `packages`: versions by name.
    """
    return [
        *_unlike(recorded["identity"], again["identity"], "{key}: another sum than recorded"),
        *_unlike(recorded["trained"], again["trained"]),
        *packages(recorded["packages"], again["packages"]),
        *_unlike(recorded["machine"], again["machine"]),
    ]


def packages(recorded: Mapping[str, str], here: Mapping[str, str]) -> list[str]:
    """A line for each package of another version, those that compute first."""
    names = sorted({*recorded, *here}, key=lambda name: (name not in LIBRARIES, name))
    return [*_unlike({n: recorded.get(n) for n in names}, {n: here.get(n) for n in names})]


def _unlike(
    one: Mapping[str, Any],
    other: Mapping[str, Any],
    form: str = "{key}: {one} recorded, {other} here",
) -> Iterator[str]:
    """A line for each key of which the two have not the same."""
    for key in {**one, **other}:
        if one.get(key) != other.get(key):
            first, second = (str(values.get(key) or "none") for values in (one, other))
            if len(first) > LONG < len(second):  # a list of words: those that differ
                apart = set(first.split()) ^ set(second.split())
                first, second = (
                    " ".join(word for word in text.split() if word in apart) or "none besides"
                    for text in (first, second)
                )
            yield form.format(key=key, one=first, other=second)


def _number(value: float | None) -> str:
    return "none" if value is None else repr(value)


def _short(text: str) -> str:
    """A sum as git shows one."""
    return text[:12] if len(text) == 64 else text
