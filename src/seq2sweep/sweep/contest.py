"""Table 2: other architectures beside the base variant, each at its best learning rate.

All get the FLOPs of the base variant's training. A share of them goes into short tries of learning
rates, the same number for each, of which the lowest validation perplexity counts; the rest into the
trainings that are compared. Like a search (`seq2sweep.sweep.search`) it remembers nothing on disk.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from seq2sweep import config as configuration
from seq2sweep.config import Config
from seq2sweep.data.bitext import Bitext
from seq2sweep.sweep.search import Run
from seq2sweep.sweep.search_space import SWEPT_SECTIONS
from seq2sweep.sweep.trial_record import OnTrial, TrialResult
from seq2sweep.sweep.variants import Refused, Trainings, Variant, base_of, entries


@dataclass(frozen=True)
class Entrant:
    """An architecture: its tries in the order of `sweep.learning_rates`, and the best of these
    rates. best: None where no try ended with a perplexity; then, and where it was refused, nothing
    is trained, and `refused` says why."""

    name: str
    tries: Sequence[TrialResult]
    best: float | None
    refused: Refused | None = None


OnChoice = Callable[[Sequence[Entrant]], None]


def compare(
    config: Config, data: Bitext, run: Run, *, on_trial: OnTrial, on_choice: OnChoice
) -> tuple[list[TrialResult], list[Entrant]]:
    """Try learning rates, then train; gives the trainings that are compared, base's first, or none
    where none of base's tries has a perplexity.

    data: the training split. run, on_trial: as of `seq2sweep.sweep.search.search`. on_choice:
    called with the architectures when their learning rates are chosen.
    """
    base = base_of(config)
    tries = entries(base, data, {})
    results = {one.variant.fingerprint: one for one in run(_trials(tries), on_trial)}
    entrants = [_entrant(name, made, results, base) for name, made in tries.items()]
    on_choice(entrants)
    rates = {one.name: one.best for one in entrants if one.best is not None}
    if entrants[0].name not in rates:
        return [], entrants  # there is nothing to compare with
    wanted = entries(base, data, rates)
    chosen = _trials({name: made for name, made in wanted.items() if name in rates})
    # Without the tries: one of them may have the same fingerprint.
    return run(chosen, on_trial) if chosen else [], entrants


def _trials(trainings: Trainings) -> list[Variant]:
    return [v for made in trainings.values() if not isinstance(made, Refused) for v in made]


def _entrant(
    name: str, made: list[Variant] | Refused, results: Mapping[str, TrialResult], base: Config
) -> Entrant:
    if isinstance(made, Refused):
        return Entrant(name, [], None, made)
    tries = [results[variant.fingerprint] for variant in made]
    rates = base.sweep.learning_rates
    known = [
        (value, place)
        for place, result in enumerate(tries)
        if result.status == "finished" and math.isfinite(value := perplexity(result))
    ]
    if known:
        return Entrant(name, tries, rates[min(known)[1]])
    cause = f"none of its tries has a validation perplexity: {tries[0].cause or tries[0].status}"
    sections = configuration.to_dict(made[0].config)
    values = {section: sections[section] for section in SWEPT_SECTIONS}
    return Entrant(name, tries, None, Refused(name, made[0].changes, cause, values))


def perplexity(result: TrialResult) -> float:
    """The newest on the validation set; not a number where there is none."""
    found = result.metrics.get("valid_perplexity")
    return math.nan if found is None else float(found)
