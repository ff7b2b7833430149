"""The vocabulary of word pieces that both languages share.

Section 5.1 of "Attention Is All You Need": byte-pair encoding with one vocabulary for source and
target (about 37000 pieces for English-German). Trained by SentencePiece on the clean training
text; cleaning has normalised it, so SentencePiece is told to change nothing.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import sentencepiece

from seq2sweep.config import VocabularyConfig
from seq2sweep.errors import UserError

PAD, BOS, EOS, UNK = 0, 1, 2, 3
MODEL_NAME = "vocabulary.model"
JSON_NAME = "vocabulary.json"

MOST_SENTENCES = 2_000_000
"""SentencePiece holds all sentences it learns from in memory; more than this changes little."""
LONGEST_SENTENCE = 65_535
"""Bytes; a longer line is left out when the pieces are learned (but is encoded as any other)."""


class Vocabulary:
    """Word pieces with ids 0 (padding), 1 (begin), 2 (end of sentence), 3 (unknown), 4, 5, ..."""

    def __init__(self, model: bytes, name: str = MODEL_NAME) -> None:
        """`model` is SentencePiece's serialised model; UserError names `name` if it is not."""
        try:
            self._pieces = sentencepiece.SentencePieceProcessor(model_proto=model)
        except RuntimeError:
            raise UserError(f"{name} is damaged: remove it and run `dvc repro`") from None
        pieces = self._pieces
        special = (pieces.pad_id(), pieces.bos_id(), pieces.eos_id(), pieces.unk_id())
        if special != (PAD, BOS, EOS, UNK):
            raise UserError(
                f"{name} is not a vocabulary of seq2sweep: padding, begin, end and unknown have "
                f"ids {special}, not {(PAD, BOS, EOS, UNK)}; remove it and run `dvc repro`"
            )
        self.fingerprint = hashlib.sha256(model).hexdigest()

    @classmethod
    def open(cls, folder: Path) -> Vocabulary:
        """Read vocabulary.model from the folder."""
        path = folder / MODEL_NAME
        try:
            model = path.read_bytes()
        except FileNotFoundError:
            raise UserError(f"{path} is missing: run `dvc repro`, which makes it") from None
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
        return cls(model, str(path))

    def __len__(self) -> int:
        return int(self._pieces.get_piece_size())

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Token ids of each line, EOS at the end, no BOS."""
        encoded: list[list[int]] = self._pieces.encode(list(lines), add_eos=True)
        return encoded

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Text of each sequence up to its first EOS; an unknown token shows as U+2047."""
        texts: list[str] = self._pieces.decode([_up_to_end(sequence) for sequence in ids])
        # SentencePiece writes " ⁇ " with blanks of its own.
        return [" ".join(text.split()) for text in texts]


def train(lines: Iterable[str], config: VocabularyConfig) -> bytes:
    """Learn the pieces; returns SentencePiece's serialised model.

    The bytes are a function of lines and config alone: one thread, no path among the arguments.
    Raises UserError when the text is too small, or has too many characters, for config.size.
    """
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            model_type="bpe",
            vocab_size=config.size,
            character_coverage=config.character_coverage,
            pad_id=PAD,
            bos_id=BOS,
            eos_id=EOS,
            unk_id=UNK,
            normalization_rule_name="identity",
            byte_fallback=False,
            max_sentence_length=LONGEST_SENTENCE,
            num_threads=1,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise _explained(error, config) from None
    return model.getvalue()


def _explained(error: RuntimeError, config: VocabularyConfig) -> Exception:
    """SentencePiece tells what is wrong with the size only in the text of its error."""
    message = str(error)
    if found := re.search(r"size too high .* value <= (\d+)", message):
        return UserError(
            f"vocabulary.size is {config.size} but this text supports at most "
            f"{found.group(1)}; lower it"
        )
    if found := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        return UserError(
            f"vocabulary.size is {config.size} but the characters of this text alone need "
            f"{found.group(1)}; raise it or lower vocabulary.character_coverage"
        )
    return error


def _up_to_end(sequence: Sequence[int]) -> list[int]:
    kept: list[int] = []
    for token in sequence:
        if token == EOS:
            break
        if token not in (PAD, BOS):
            kept.append(int(token))
    return kept
