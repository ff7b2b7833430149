"""Translate any text with the weights that training left."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from seq2sweep import config as configuration
from seq2sweep.config import EvaluateConfig, ModelConfig
from seq2sweep.data.clean import Normaliser
from seq2sweep.data.treebank.linearisation import rebuild
from seq2sweep.data.vocabulary import Vocabulary
from seq2sweep.decode.average import averaged
from seq2sweep.decode.beam import Engine, Translation, translate
from seq2sweep.decode.exported_weights import choose, read_receipt
from seq2sweep.errors import UserError
from seq2sweep.parallel import Mapper, available_cpus, serial
from seq2sweep.train.checkpointing import CheckpointError


class Translator:
    """Averaged weights and their vocabulary, ready for text as a person writes it."""

    def __init__(self, weights: Path, vocabulary: Path, config: EvaluateConfig) -> None:
        """Open the folders models/train and data/vocabulary, or others like them.

        `steps` and `weights`: steps and sha256 sums of the checkpoints that are averaged.
        Raises UserError when a folder is missing or damaged or they do not belong together.
        """
        receipt = read_receipt(weights)
        self.config = config
        self.vocabulary = Vocabulary.open(vocabulary)
        if receipt["lineage"]["data.vocabulary"] != self.vocabulary.fingerprint:
            raise UserError(
                f"{weights} was trained with another vocabulary than {vocabulary}: run "
                "`dvc repro evaluate`, or give the folders that belong together"
            )
        prepare = receipt["config"]["prepare"]
        chosen = choose(weights, config)
        self.steps = tuple(entry.step for entry in chosen)
        self.weights = tuple(entry.sha256 for entry in chosen)
        try:
            self.normaliser = Normaliser(prepare["normalise"], prepare["lowercase"])
            model = configuration.section(ModelConfig, receipt["config"]["model"], "model.")
            self.model = averaged(model, [entry.file for entry in chosen], len(self.vocabulary))
        except (KeyError, TypeError, CheckpointError, UserError) as error:
            raise UserError(
                f"{weights} is of another version of this program ({error}): train again by "
                "`dvc repro evaluate`"
            ) from None

    def translate(
        self,
        lines: Sequence[str],
        n_best: int = 1,
        on_done: Callable[[int], object] = lambda sentences: None,
        engine: Engine | None = None,
        mapper: Mapper = serial,
    ) -> list[list[Translation]]:
        """Normalise lines as training text was and translate them: see `decode.beam.translate`.

        With a model for trees, lines are words with blanks between, punctuation among them, and
        what comes out are trees, whose tags are XX unless the model writes them.
        """
        trees = self.vocabulary.symbols is not None
        words, clean = [line.split() for line in lines], self.clean(lines)
        found = translate(
            self.model,
            self.vocabulary,
            clean,
            self.config,
            None,
            on_done,
            n_best,
            engine,
            mapper,
            words=[*map(len, words)] if trees else None,
        )
        if not trees:
            return found
        return [
            [replace(one, text=str(rebuild(one.text.split(), of)[0])) for one in best]
            for best, of in zip(found, words, strict=True)
        ]

    def clean(self, lines: Sequence[str]) -> list[str]:
        """Lines as training text was, or, for trees, words with single blanks between."""
        if self.vocabulary.symbols is not None:
            return [" ".join(line.split()) for line in lines]
        return [self.normaliser(line) for line in lines]

    def ctranslate2(self, stack: contextlib.ExitStack) -> Engine:
        """CTranslate2 with these weights, exported to a folder that `stack` removes."""
        from seq2sweep.decode import ctranslate

        folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "exported"
        ctranslate.export(self.model, folder)
        return ctranslate.Search(folder, self.config, available_cpus())
