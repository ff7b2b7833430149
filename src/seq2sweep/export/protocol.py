"""What a format that models are exported to has to say, and what its check asks of it."""

from __future__ import annotations

import importlib
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

from torch import Tensor

from seq2sweep.decode.beam import Engine, Penalty, Stopping
from seq2sweep.errors import UserError
from seq2sweep.evaluate.translator import Translator
from seq2sweep.model.architecture import Architecture
from seq2sweep.model.architecture.transformer import Transformer

OnDone = Callable[[int], object]
SEARCH = ("beam", "length_penalty", "alpha", "max_extra_tokens", "max_input_tokens", "stopping")
"""Keys of `evaluate` that say how a model's numbers are searched."""
AT_ONCE = 32
"""Sentences that an engine gets together."""


@dataclass(frozen=True)
class Bounds:
    """How far the new engine may be from our own search, and why it may be at all.

    same: least share of translations that are the same. score: points of BLEU, or F1, that one may
    have more than the other. logits: greatest difference, by the greatest logit, or of
    log-probabilities of tokens, by the greatest, where the engine shows these alone; None: what it
    computes is the same numbers, or is meant to differ.
    """

    same: float
    score: float
    logits: float | None
    why: str


class Opened(Protocol):
    """An exported model in its engine."""

    def translate(self, lines: Sequence[str], on_done: OnDone) -> list[str]:
        """Of clean lines that are not empty. `on_done` hears how many more are done."""


@runtime_checkable
class ShowsLogits(Opened, Protocol):
    """One of a format whose `Bounds.logits` is set."""

    def logits(self, source: Tensor, target_in: Tensor) -> Tensor:
        """[B, m, V] of tokens [B, n] and [B, m], padded."""


@runtime_checkable
class ShowsLogProbs(Opened, Protocol):
    """One of a format whose `Bounds.logits` is set, which scores given translations alone."""

    def log_probs(
        self, sources: list[list[int]], targets: list[list[int]]
    ) -> Iterator[Sequence[float]]:
        """Of each target's tokens and its EOS, in nats. Sources end with EOS, targets do not."""


class Format(ABC):
    """One that a model can be exported to."""

    title: str
    bounds: Bounds
    PENALTIES: ClassVar[tuple[Penalty, ...]] = ("power",)
    """Kinds of `evaluate.length_penalty` that its engine knows."""
    STOPPINGS: ClassVar[tuple[Stopping, ...]] = ("exact", "own_length")
    """Kinds of `evaluate.stopping` that its engine can be compared by."""

    @abstractmethod
    def refuses(self, translator: Translator) -> str | None:
        """What of a model it cannot hold, in words; None: nothing."""

    @abstractmethod
    def write(self, translator: Translator, folder: Path) -> None:
        """Fill an empty folder. Raises UserError where a package is missing."""

    @abstractmethod
    def opened(self, folder: Path, translator: Translator) -> Opened:
        """What `write` wrote, read afresh, to search as `translator.config` says."""


def other_architecture(
    program: str,
    model: Architecture,
    mend: str = "choose --format safetensors, which holds every model",
) -> str | None:
    """Why a program that knows the Transformer alone does not take a model; None: it is one.

    One that derives from it is not: with the same settings it may compute something else.
    """
    if type(model) is Transformer:
        return None
    return f"{program} has no model.architecture {model.config.architecture}: {mend}"


class Searched:
    """An exported model whose engine gets tokens: a translator makes them, and text of what comes.

    engine: None for the translator's own search.
    """

    def __init__(self, translator: Translator, engine: Engine | None = None) -> None:
        self.translator, self.engine = translator, engine

    def translate(self, lines: Sequence[str], on_done: OnDone) -> list[str]:
        found = self.translator.translate(lines, on_done=on_done, engine=self.engine)
        return [best[0].text for best in found]


def of_one_length(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Indices in groups of at most AT_ONCE, all of one length: ours limits each output by its own
    input, these engines all of a batch alike."""
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    for _, same in itertools.groupby(order, key=lambda i: lengths[i]):
        group = list(same)
        yield from (group[i : i + AT_ONCE] for i in range(0, len(group), AT_ONCE))


def needed(extra: str, *packages: str) -> list[Any]:
    """Import packages of one of this package's extras. Raises UserError where one is missing."""
    try:
        return [importlib.import_module(package) for package in packages]
    except ModuleNotFoundError as error:
        raise UserError(
            f"{error.name} is not installed: pip install -c constraints.txt -e '.[{extra}]'"
        ) from None
