"""Optuna proposes variants. The only module that imports it.

The study is in memory, its sampler is seeded, and it is asked and told in a fixed order. So it
needs no database: whoever asks again, and tells the same figures, is proposed the same.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import Trial, TrialState, create_trial

from seq2sweep.config import SweepConfig
from seq2sweep.sweep.search_space import Changes, Choices, Range, Space, merged

HIGHER_IS_BETTER = {
    "bleu": True,
    "bleu_paper": True,
    "chrf": True,
    "f1": True,
    "perplexity": False,
    "flops": False,
    "parameters": False,
}
"""The objectives that `sweep.objectives` may name."""

STARTUP = 5
"""Trials with figures before proposals are more than random.

Optuna's own ten would leave next to nothing of a small search. The same for any `sweep.samples`, so
that a search can be made longer.
"""

FIGURE_OF = {"perplexity": "valid_perplexity"}
"""What an objective is called among a trial's figures, where that is another name."""


@dataclass(frozen=True)
class Outcome:
    """How a variant ended: a value for each objective, none if it failed; at which step."""

    state: Literal["finished", "stopped early", "failed"]
    values: tuple[float, ...] = ()
    step: int = 0


class Proposals:
    """Asks a study of TPE (Bergstra et al. 2011; of several objectives, Ozaki et al. 2022)."""

    def __init__(self, sweep: SweepConfig, space: Space) -> None:
        # Our own lines say what happens.
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._space = space
        self._distributions = {", ".join(keys): _distribution(space[keys]) for keys in space}
        self._asked: list[Trial] = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(
                seed=sweep.seed,
                n_startup_trials=STARTUP,
                # Proposed together, they must differ though none has figures yet.
                constant_liar=True,
            )
            self._study = optuna.create_study(
                directions=[
                    "maximize" if HIGHER_IS_BETTER[name] else "minimize"
                    for name in sweep.objectives
                ],
                sampler=sampler,
            )

    def ask(self, count: int) -> list[Changes]:
        """As many proposals, each the changes to the base variant; they may be equal."""
        self._asked = [self._study.ask(self._distributions) for _ in range(count)]
        return [self._changes(trial.params) for trial in self._asked]

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """How the variants ended that were asked for last, in that order."""
        for trial, outcome in zip(self._asked, outcomes, strict=True):
            if outcome.state == "finished":
                self._study.tell(trial, outcome.values)
            elif outcome.state == "stopped early":
                for value in outcome.values:  # of the one objective, if it is known
                    trial.report(value, outcome.step)
                self._study.tell(trial, state=TrialState.PRUNED)
            else:
                self._study.tell(trial, state=TrialState.FAIL)
        self._asked = []

    def add(self, values: Mapping[str, Any], outcome: Outcome) -> None:
        """Tell of a finished variant that was not asked for, if its values lie in the space.

        values: by dotted key.
        """
        # It lacks keys that only other architectures have.
        if not all(key in values for keys in self._space for key in keys):
            return
        params = {
            ", ".join(keys): _place(choices, tuple(values[key] for key in keys))
            for keys, choices in self._space.items()
        }
        if outcome.state == "finished" and None not in params.values():
            trial = create_trial(
                params=params, distributions=self._distributions, values=outcome.values
            )
            self._study.add_trial(trial)

    def _changes(self, params: Mapping[str, Any]) -> Changes:
        drawn = [params[", ".join(keys)] for keys in self._space]
        return merged(
            self._space,
            [
                (choices.shortened(value),) if isinstance(choices, Range) else choices[value]
                for value, choices in zip(drawn, self._space.values(), strict=True)
            ],
        )


def _distribution(choices: Choices) -> BaseDistribution:
    """Of a list, whose values may be of any type, Optuna draws the place."""
    if not isinstance(choices, Range):
        return CategoricalDistribution(range(len(choices)))
    if choices.whole:
        low, high = int(choices.low), int(choices.high)
        return IntDistribution(low, high, log=choices.log)
    return FloatDistribution(choices.low, choices.high, log=choices.log)


def _place(choices: Choices, values: tuple[Any, ...]) -> Any:
    """What Optuna would have drawn for these values; None where it cannot draw them."""
    if not isinstance(choices, Range):
        return choices.index(values) if values in choices else None
    [value] = values
    if not isinstance(value, int | float) or not choices.low <= value <= choices.high:
        return None
    if choices.whole:
        return int(value) if value == int(value) else None
    return float(value)
