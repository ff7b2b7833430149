"""Weights in, translations and scores out: all that metrics/evaluate.json says."""

from __future__ import annotations

import functools
import hashlib
import math
import operator
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seq2sweep import config as configuration
from seq2sweep.config import Config
from seq2sweep.config.scores import SCORES
from seq2sweep.data import files
from seq2sweep.data.bitext import Bitext, read_header, require_positions
from seq2sweep.data.reading import read_lines
from seq2sweep.data.vocabulary import Vocabulary
from seq2sweep.decode.beam import best_device
from seq2sweep.errors import UserError
from seq2sweep.evaluate.bleu import bootstrap_seed
from seq2sweep.evaluate.by_length import ScoresByLength
from seq2sweep.evaluate.scorers import scorer
from seq2sweep.evaluate.task import TASKS, Given
from seq2sweep.evaluate.translations_table import translations_table
from seq2sweep.evaluate.translator import Translator
from seq2sweep.hardware import memory_by, return_unused
from seq2sweep.model.architecture import Architecture
from seq2sweep.parallel import Mapper, serial
from seq2sweep.storage import atomic
from seq2sweep.train.allocator import keep_memory
from seq2sweep.train.step import choose_precision
from seq2sweep.train.validation import negative_log_likelihood


@dataclass(frozen=True)
class Data:
    """Folders that earlier stages made: clean text, vocabulary and encoded bitext."""

    clean: Path
    vocabulary: Path
    encoded: Path

    def lines(self, split: str, side: str) -> list[str]:
        """All lines of one side ("source" or "target") of a split."""
        return list(read_lines(self.clean / files.text_name(split, side)))

    def tags(self, split: str) -> list[list[str]] | None:
        """The phenomena of each sentence, for test sets that have them."""
        path = self.clean / files.PHENOMENA
        if split != "test" or not path.exists():
            return None
        return [line.split() for line in read_lines(path)]

    def verify(self, split: str) -> None:
        """Raises UserError where a file has changed, or one folder was not made from the others."""
        files.verify(self.clean, split)
        files.verify(self.encoded, split)
        header = read_header(self.encoded, split)
        for side, encoded in header["text"].items():
            text = self.clean / files.text_name(split, side)
            if atomic.sha256(text) != encoded:
                raise UserError(f"{self.encoded} is not made from {text}: run `dvc repro encode`")
        if Vocabulary.open(self.vocabulary).fingerprint != header["vocabulary"]["fingerprint"]:
            raise UserError(
                f"{self.encoded} is made with another vocabulary than {self.vocabulary}: run "
                "`dvc repro encode`"
            )


@dataclass(frozen=True)
class Evaluation:
    """Translations of a split in its order, and the figures of metrics/evaluate.json."""

    translations: list[str]
    metrics: dict[str, Any]
    table: str = ""
    """The text of reports/translations.tsv."""


def evaluate_weights(
    config: Config,
    translator: Translator,
    data: Data,
    split: str,
    on_done: Callable[[int], object] = lambda sentences: None,
    mapper: Mapper = serial,
) -> Evaluation:
    """What the stage `evaluate` finds of weights that training left, as `translator` has them.

    Its metrics are those of metrics/evaluate.json but for the run in MLflow: scores, perplexity and
    speed (`evaluate`), `averaged_checkpoints`, `phenomena` for test sets that have them,
    `by_length`, and `made_from`, by which weights, text and settings can be told from others.
    """
    config = config.sized(translator.about.get("trained", {}).get("tokens_per_pass"))
    result = evaluate(config, translator.model, data, split, on_done, mapper, beside=True)
    references, tags = data.lines(split, "target"), data.tags(split)
    table = translations_table(data.lines(split, "source"), references, result.translations, tags)
    metrics = result.metrics | {"averaged_checkpoints": [*translator.steps]}
    if tags is not None:
        of_task = TASKS[config.data.task]
        metrics["phenomena"] = of_task.by_phenomenon(result.translations, references, tags)
    metrics["by_length"] = _by_length(config, result.translations, references, data, split)
    metrics["made_from"] = {
        "weights": [*translator.weights],
        "translations": hashlib.sha256(table.encode()).hexdigest(),
        "test_set": files.test_set(data.clean, split),
        "evaluate": configuration.to_dict(config)["evaluate"],
    }
    return Evaluation(result.translations, metrics, table)


def _by_length(
    config: Config,
    translations: Sequence[str],
    references: Sequence[str],
    data: Data,
    split: str,
) -> list[dict[str, Any]]:
    """`shortest`, `longest`, `sentences` and `bleu`, or `f1`, of each quarter of a split, short
    ones first; of fewer parts where `ScoresByLength` makes two of them one.

    By source tokens; the stage `evaluate` knows nothing of the sentences that were trained on.
    """
    target, lowercase = config.data.target, config.prepare.lowercase
    scores = ScoresByLength(
        scorer(references, target, lowercase=lowercase),
        Bitext.open(data.encoded, split).source_lengths,
    )
    found = scores.score(translations)["bins"]
    return [{**of, config.data.score: one} for of, one in zip(scores.bins, found, strict=True)]


def shown(metrics: Mapping[str, Any], config: Config) -> dict[str, float]:
    """The few numbers of `evaluate_weights` that MLflow shows, flat."""
    task = TASKS[config.data.task]
    return {name: _at(metrics, key) for name, key in task.SHOWN.items()} | {
        "test_perplexity": metrics["perplexity"],
        "decode_tokens_per_second": metrics["decode_tokens_per_second"],
    }


def shown_by_dvc(metrics: Mapping[str, Any], config: Config) -> dict[str, float]:
    """Those of them that `dvc metrics show` has."""
    found = shown(metrics, config)
    return {k: found[k] for k in (*TASKS[config.data.task].IN_DVC, "test_perplexity")}


def signature(metrics: Mapping[str, Any], config: Config) -> str:
    """How the score by which trainings are compared is computed."""
    return str(_at(metrics, TASKS[config.data.task].SIGNATURE))


def _at(metrics: Mapping[str, Any], key: str) -> Any:
    return functools.reduce(operator.getitem, key.split("."), metrics)


def evaluate(
    config: Config,
    model: Architecture,
    data: Data,
    split: str,
    on_done: Callable[[int], object] = lambda sentences: None,
    mapper: Mapper = serial,
    *,
    beside: bool = False,
) -> Evaluation:
    """Decode a split with a model that is ready for it, and score what comes out.

    The mapper shares the decoding out. Perplexity is per piece, unsmoothed, on the reference;
    all scores come from one decode. beside: also what the task says beside them.
    """
    bootstrap_seed()  # or its mistake would be told when all is decoded
    data.verify(split)
    vocabulary = Vocabulary.open(data.vocabulary)
    device = best_device()
    task = TASKS[config.data.task]
    source, target = (data.lines(split, side) for side in files.SIDES)
    bitext = Bitext.open(data.encoded, split)
    # Both before decoding, which may take hours: the likelihood needs more memory for a long line.
    require_positions(bitext, split, model.max_length)
    if device.type == "cpu":
        keep_memory()
    with memory_by(_less_memory(bitext, split, config.train.pass_tokens)):
        likelihood, reference_pieces = negative_log_likelihood(
            model.to(device),
            bitext,
            tokens_per_pass=config.train.pass_tokens,
            precision=choose_precision(config.train.precision, device, config.model.d_model),
            device=device,
        )
    if mapper is not serial and device.type == "cuda":  # others may search on this GPU meanwhile
        model.cpu()
        return_unused()
    given = Given(model, vocabulary, source, target, config, mapper)
    started = time.perf_counter()
    hypotheses, metrics = task.decode(given, on_done)
    seconds = time.perf_counter() - started
    pieces = sum(len(line) for line in vocabulary.encode(hypotheses, "target"))
    metrics |= task.score(hypotheses, given)
    metrics |= {
        "split": split,
        "perplexity": math.exp(min(likelihood / reference_pieces, 700.0)),
        "beam": config.evaluate.beam,
        "length_penalty": config.evaluate.length_penalty,
        "alpha": config.evaluate.alpha,
        "stopping": config.evaluate.stopping,
        "search_precision": config.evaluate.precision,
        "decode_seconds": seconds,
        "decode_tokens_per_second": pieces / seconds,
    }
    if beside:
        metrics |= task.beside(given, metrics)
    return Evaluation(hypotheses, metrics)


def _less_memory(bitext: Bitext, split: str, pass_tokens: int) -> str:
    """What to do where memory is refused. A sentence of more tokens than a pass is one alone."""
    lengths = np.maximum(bitext.source_lengths, bitext.target_lengths)
    line = int(lengths.argmax())
    if lengths[line] > pass_tokens:
        found = f"line {line + 1} of the {split} set has {lengths[line]} tokens"
        return f"{found}: split it on both sides"
    return f"passes have {pass_tokens} tokens, as in training: evaluate where more memory is free"


def validation_scores(config: Config, model: Architecture, data: Data) -> dict[str, Any]:
    """Scores of a model on the validation set, as in Table 3.

    Beside them the `translations`, a list in the order of the set.
    """
    shown_by = TASKS[config.data.task].SHOWN
    result = evaluate(config, model, data, "valid")
    metrics = SCORES[config.data.score].metrics
    return {name: _at(result.metrics, shown_by[name]) for name in metrics} | {
        "signature": signature(result.metrics, config),
        "translations": result.translations,
    }
