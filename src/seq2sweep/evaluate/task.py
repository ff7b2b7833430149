"""What models are trained for: how sentences are decoded, and what is scored and how.

A task is `data.target`: a language, or trees. What comes before it, the data stages, and what
comes after, training, sweeps, resuming and records, is the same for all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from seq2sweep.config import Config
from seq2sweep.data.vocabulary import Vocabulary
from seq2sweep.decode.beam import translate
from seq2sweep.evaluate import bleu, parsing
from seq2sweep.evaluate.scorers import TreeScorer
from seq2sweep.evaluate.significance import confidence
from seq2sweep.model.architecture import Architecture
from seq2sweep.parallel import Mapper

OnDone = Callable[[int], object]


@dataclass(frozen=True)
class Given:
    """A model, and the sentences to decode with it: lines of the source, and of the target what is
    to come out."""

    model: Architecture
    vocabulary: Vocabulary
    sources: Sequence[str]
    references: Sequence[str]
    config: Config
    mapper: Mapper


class Task(ABC):
    """Hypotheses and references are lines of the target: text, or trees."""

    SHOWN: ClassVar[Mapping[str, str]]
    """The few metrics that MLflow shows, those of `config.scores` among them, and the keys, with
    dots between, that they are under."""
    IN_DVC: ClassVar[Sequence[str]]
    """Those of SHOWN that `dvc metrics show` has."""
    SIGNATURE: ClassVar[str]
    """The key of how `config.data.score` is computed."""

    @abstractmethod
    def decode(self, given: Given, on_done: OnDone) -> tuple[list[str], dict[str, Any]]:
        """A hypothesis for each source, and what metrics tell of how they came about."""

    @abstractmethod
    def score(self, hypotheses: Sequence[str], given: Given) -> dict[str, Any]:
        """Metrics over all sentences."""

    @abstractmethod
    def beside(self, given: Given, metrics: Mapping[str, Any]) -> dict[str, Any]:
        """What the stage `evaluate` says beside `metrics`, and a trial of a sweep does not."""

    @abstractmethod
    def score_some(self, hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
        """The few metrics of `by_phenomenon`."""

    def by_phenomenon(
        self,
        hypotheses: Sequence[str],
        references: Sequence[str],
        tags: Sequence[Sequence[str]],
    ) -> dict[str, dict[str, Any]]:
        """For each tag, in alphabetical order: the number of `sentences` that carry it, and
        `score_some` over them.

        tags: of each sentence; none, one or several, under each of which it counts once. Raises
        ValueError where the three sequences differ in length.
        """
        groups: dict[str, list[tuple[str, str]]] = {}
        for hypothesis, reference, labels in zip(hypotheses, references, tags, strict=True):
            for label in set(labels):
                groups.setdefault(label, []).append((hypothesis, reference))
        return {
            label: {"sentences": len(pairs), **self.score_some(*zip(*pairs, strict=True))}
            for label, pairs in sorted(groups.items())
        }


class Translation(Task):
    """Into another language, scored by BLEU."""

    SHOWN: ClassVar[Mapping[str, str]] = {
        "bleu": "bleu.sacrebleu.score",
        "bleu_paper": "bleu.paper.score",
        "chrf": "chrf.score",
        "exact_match": "exact_match",
    }
    IN_DVC = ("bleu", "bleu_paper", "chrf")
    SIGNATURE = "bleu.sacrebleu.signature"

    def decode(self, given: Given, on_done: OnDone) -> tuple[list[str], dict[str, Any]]:
        found = translate(
            given.model,
            given.vocabulary,
            given.sources,
            given.config.evaluate,
            None,
            on_done,
            mapper=given.mapper,
        )
        return [best[0].text for best in found], {}

    def score(self, hypotheses: Sequence[str], given: Given) -> dict[str, Any]:
        return bleu.score(
            hypotheses,
            given.references,
            given.config.data.target,
            lowercase=given.config.prepare.lowercase,
        )

    def beside(self, given: Given, metrics: Mapping[str, Any]) -> dict[str, Any]:
        return {}

    def score_some(self, hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
        return {
            "exact_match": bleu.exact_match(hypotheses, references),
            "bleu": bleu.corpus_bleu(hypotheses, references),
        }


class Parsing(Task):
    """Into constituency trees, scored by F1."""

    SHOWN: ClassVar[Mapping[str, str]] = {
        "f1": "f1",
        "precision": "precision",
        "recall": "recall",
        "complete": "complete",
        "f1_unconstrained": "unconstrained.f1",
    }
    IN_DVC = ("f1", "complete", "f1_unconstrained")
    SIGNATURE = "signature"

    def decode(self, given: Given, on_done: OnDone) -> tuple[list[str], dict[str, Any]]:
        parses = self._parse(given, on_done, well_formed=True)
        return parses.trees, {"well_formed": parses.faults}

    def score(self, hypotheses: Sequence[str], given: Given) -> dict[str, Any]:
        return parsing.score(hypotheses, given.references) | {
            "confidence": confidence(hypotheses, TreeScorer(given.references))
        }

    def beside(self, given: Given, metrics: Mapping[str, Any]) -> dict[str, Any]:
        """`unconstrained`: the search of the paper; `floors`: what needs no model."""
        free = self._parse(given, lambda sentences: None, well_formed=False)
        return {
            "unconstrained": parsing.against(free, given.references, metrics["f1"]),
            "floors": parsing.floors(given.references),
        }

    def score_some(self, hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
        scores = parsing.score(hypotheses, references)
        return {key: scores[key] for key in ("f1", "complete")}

    def _parse(self, given: Given, on_done: OnDone, *, well_formed: bool) -> parsing.Parses:
        return parsing.parse(
            given.model,
            given.vocabulary,
            given.sources,
            given.config.evaluate,
            gold=given.references,
            well_formed=well_formed,
            on_done=on_done,
            mapper=given.mapper,
        )


TASKS: Mapping[str, Task] = {"translation": Translation(), "parsing": Parsing()}
"""By `config.data.task`."""
