"""Translate any text with the weights that training left."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from seq2sweep import config as configuration
from seq2sweep.config import EvaluateConfig, ModelConfig
from seq2sweep.data.clean import Normaliser
from seq2sweep.data.treebank.linearisation import rebuild
from seq2sweep.data.treebank.trees import sentence_words, words_of
from seq2sweep.data.vocabulary import Vocabulary
from seq2sweep.decode.average import average, build
from seq2sweep.decode.beam import Engine, OurSearch, Translation, best_device, translate
from seq2sweep.decode.ensemble import Ensemble
from seq2sweep.decode.exported_weights import choose, read_receipt, trained_by
from seq2sweep.decode.grouping import longest_input
from seq2sweep.decode.model_folder import read_model_folder, write_model_folder
from seq2sweep.decode.streaming import Part, stream
from seq2sweep.errors import UserError
from seq2sweep.hardware import memory_by
from seq2sweep.model import building
from seq2sweep.model.architecture import Architecture
from seq2sweep.parallel import Mapper, available_cpus, serial
from seq2sweep.train.checkpointing import CheckpointError

LINES_AT_ONCE = 20_000
"""Enough to find sentences of one length for each machine; so many are lost in an interruption."""
WRONG = (KeyError, TypeError, ValueError, CheckpointError, UserError)
"""What weights and settings of another version of this program raise."""


class Translator:
    """Averaged weights and their vocabulary, ready for text as a person writes it.

    config: how to search. settings: sections of params.yaml with which the weights were trained,
    and `evaluate`, which is `config`. steps and weights: steps and sha256 sums of the checkpoints
    that are averaged. about: what made them: `run`, `lineage` and more, where it is known. kept:
    whether `config` is the model's own, and not that of params.yaml.
    """

    config: EvaluateConfig
    settings: dict[str, Any]
    steps: tuple[int, ...]
    weights: tuple[str, ...]
    about: dict[str, Any]
    vocabulary: Vocabulary
    normaliser: Normaliser
    model: Architecture
    kept: bool = False

    def __init__(self, weights: Path, vocabulary: Path, config: EvaluateConfig) -> None:
        """Open the folders models/train and data/vocabulary, or others like them.

        Raises UserError when a folder is missing or damaged or they do not belong together.
        """
        receipt = read_receipt(weights)
        opened = Vocabulary.open(vocabulary)
        if receipt["lineage"].get("data.vocabulary") != opened.fingerprint:
            raise UserError(
                f"{weights} was trained with another vocabulary than {vocabulary}: run "
                f"`dvc repro {trained_by(weights)}`, or give the folders that belong together"
            )
        chosen = choose(weights, config)
        self.steps = tuple(entry.step for entry in chosen)
        self.weights = tuple(entry.sha256 for entry in chosen)
        # Not the name of the machine: a model is handed on.
        lineage = {key: value for key, value in receipt["lineage"].items() if key != "host"}
        made_by: dict[str, Any] = {
            key: receipt[key] for key in ("run", "trained", "cost") if key in receipt
        }
        self.about = {**made_by, "lineage": lineage}
        try:
            files = average([entry.file for entry in chosen])
            self._take(files, opened, receipt["config"], config)
        except WRONG as error:
            raise UserError(
                f"{weights} is of another version of this program ({error}): train again by "
                f"`dvc repro {trained_by(weights)}`"
            ) from None

    @classmethod
    def open(cls, folder: Path, config: EvaluateConfig | None = None) -> Translator:
        """Open a model that is one folder, as `save` writes it.

        config: how to search; None: as when it was saved. Raises UserError when a file is missing,
        was changed, or is of another version.
        """
        held = read_model_folder(folder)
        self = cls.__new__(cls)
        self.about, self.kept = held.about, config is None
        try:
            self.steps = tuple(held.about.get("steps", ()))
            self.weights = tuple(held.about.get("checkpoints", (held.sha256,)))
            kept = configuration.section(EvaluateConfig, held.config["evaluate"], "evaluate.")
            self._take(held.weights, held.vocabulary, held.config, config or kept)
        except WRONG as error:
            raise UserError(
                f"{folder} is of another version of this program ({error}): export it again"
            ) from None
        return self

    @classmethod
    def together(cls, members: Sequence[Translator]) -> Translator:
        """An ensemble of the members, `decode.ensemble`, which searches as the first one does.

        Raises UserError where one has another vocabulary, other languages, or normalises text in
        another way.
        """
        first = members[0]
        for number, other in enumerate(members[1:], start=2):
            if other.vocabulary.fingerprint != first.vocabulary.fingerprint:
                raise UserError(
                    f"model {number} has another vocabulary than model 1: an ensemble has one"
                )
            # Any two models of bytes have the same vocabulary.
            ours, theirs = (one.settings["data"] for one in (first, other))
            pairs = [f"{data['source']} to {data['target']}" for data in (ours, theirs)]
            if pairs[0] != pairs[1]:
                raise UserError(
                    f"model {number} translates {pairs[1]}, model 1 {pairs[0]}: an ensemble has one"
                )
            ours, theirs = (one.settings["prepare"] for one in (first, other))
            for key in ("normalise", "lowercase"):
                if theirs[key] != ours[key]:
                    raise UserError(
                        f"model {number} was trained with prepare.{key} {theirs[key]}, model 1 "
                        f"with {ours[key]}: an ensemble reads one text"
                    )
        if len(members) == 1:
            return first
        self = copy.copy(first)
        self.model = Ensemble([member.model for member in members])
        self.steps = tuple(step for member in members for step in member.steps)
        self.weights = tuple(sum for member in members for sum in member.weights)
        return self

    def _take(
        self,
        weights: dict[str, Tensor],
        vocabulary: Vocabulary,
        settings: Mapping[str, Any],
        config: EvaluateConfig,
    ) -> None:
        """weights: averaged. settings: sections of params.yaml."""
        self.config, self.vocabulary = config, vocabulary
        self.settings = {**settings, "evaluate": dataclasses.asdict(config)}
        prepare = settings["prepare"]
        self.normaliser = Normaliser(prepare["normalise"], prepare["lowercase"])
        model = configuration.section(ModelConfig, settings["model"], "model.")
        count = sum(tensor.numel() for tensor in weights.values())
        kind = building.architecture(model.architecture)
        if (expected := kind.parameter_count(model, len(vocabulary))) != count:
            raise CheckpointError(f"the model has {expected:,} parameters, its weights {count:,}")
        gpu = "free the GPU, or set CUDA_VISIBLE_DEVICES= to use the CPU"
        with memory_by(gpu if best_device().type == "cuda" else "free some"):
            self.model = build(model, weights, len(vocabulary))

    @property
    def longest_input(self) -> int:
        """Tokens of a sentence, EOS among them, beyond which it is cut or refused."""
        return longest_input(self.config, self.model)

    def save(self, folder: Path, about: Mapping[str, Any] | None = None) -> None:
        """Write the model, its vocabulary and how to search into one folder, which is empty or not
        there: `decode.model_folder`.

        about: what else to note of it, beside the checkpoints and what made them.
        """
        noted = {**self.about, "steps": self.steps, "checkpoints": self.weights, **(about or {})}
        weights = dict(self.model.named_parameters())
        write_model_folder(folder, weights, self.vocabulary, self.settings, noted)

    def translate(
        self,
        lines: Sequence[str],
        n_best: int = 1,
        on_done: Callable[[int], object] = lambda sentences: None,
        engine: Engine | None = None,
        mapper: Mapper = serial,
        config: EvaluateConfig | None = None,
        first: int = 1,
    ) -> list[list[Translation]]:
        """Normalise lines as training text was and translate them: see `decode.beam.translate`.

        config: how to search, instead of `self.config`; as `searched` gives it. With a model for
        trees, lines are words with blanks between, punctuation among them, and what comes out are
        trees, whose tags are XX unless the model writes them.
        """
        mend = self.remedy(OurSearch.mend[0]), self.remedy(OurSearch.mend[1])
        trees, config = self.vocabulary.symbols is not None, config or self.config
        words, clean = [*map(sentence_words, lines)] if trees else [], self.clean(lines)
        found = translate(
            self.model,
            self.vocabulary,
            clean,
            config,
            None,
            on_done,
            n_best,
            engine or OurSearch(self.model, config, mend=mend),
            mapper,
            words=[*map(len, words)] if trees else None,
            first=first,
        )
        if not trees:
            return found
        return [
            [replace(one, text=str(rebuild(words_of(one.text), of)[0])) for one in best]
            for best, of in zip(found, words, strict=True)
        ]

    def searched(self, n_best: int = 1, **changes: Any) -> EvaluateConfig:
        """How to search, with other values of `evaluate`, and room for the `n_best`.

        Raises UserError for values that cannot be searched with.
        """
        config: EvaluateConfig = configuration.section(
            EvaluateConfig, {**self.settings["evaluate"], **changes}, "evaluate.", "search"
        )
        for problem in configuration.broken_rules(config, "evaluate."):
            raise UserError(problem)
        if not 1 <= n_best <= config.beam:
            raise UserError(
                f"n_best is {n_best}: it must be from 1 to evaluate.beam, {config.beam}"
            )
        return config

    def stream(self, lines: Sequence[str], config: EvaluateConfig | None = None) -> Iterator[Part]:
        """Parts of what `translate` gives, as they become final: see `decode.streaming`."""
        return stream(self.model, self.vocabulary, self.clean(lines), config or self.config)

    def clean(self, lines: Sequence[str]) -> list[str]:
        """Lines as training text was, or, for trees, words with single blanks between."""
        if self.vocabulary.symbols is not None:
            return [" ".join(sentence_words(line)) for line in lines]
        return [self.normaliser(line) for line in lines]

    def remedy(self, change: str) -> str:
        """What to do so that a change of `evaluate` counts."""
        if not self.kept:
            return change
        return f"{change} in params.yaml and export the model again, which keeps its own settings"

    def ctranslate2(self, stack: contextlib.ExitStack) -> Engine:
        """CTranslate2 with these weights, exported to a folder that `stack` removes.

        Raises UserError for what it does not know.
        """
        from seq2sweep.decode import ctranslate

        if not ctranslate.divides_by_length(self.config):
            mend = self.remedy("set evaluate.length_penalty to power")
            raise UserError(
                f"CTranslate2 divides by length ** alpha: leave out --engine, or {mend}"
            )
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "exported"
        longest = ctranslate.most_tokens(self.config)
        ctranslate.export(self.model, folder, longest=longest)
        most = min(longest, self.model.max_length)
        return ctranslate.Search(folder, self.config, available_cpus(), max_length=most)
