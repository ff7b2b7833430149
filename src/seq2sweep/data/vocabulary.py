"""The vocabulary of word pieces that both languages share.

Section 5.1 of "Attention Is All You Need": byte-pair encoding with one vocabulary for source and
target (about 37000 pieces) for English-German, word pieces (32000) for English-French. Learned on
the clean training text; cleaning has normalised it, so nothing is changed here.

| kind | learned by | a word is cut |
|---|---|---|
| bpe | SentencePiece: joins the most frequent pair of pieces, again and again | by the same joins |
| unigram | SentencePiece: drops the pieces that the text's likelihood misses least | most likely |
| word_piece | as bpe | by longest match first, see word_piece.py |
| characters | SentencePiece: the most frequent characters, the blank one of them | each a token |
| bytes | nothing | into its bytes, see utf8.py |

The last two are for models that read characters, such as ByteNet: sequences are four or five times
as long. Where the target is trees, it has a closed vocabulary of its own, see treebank/symbols.py.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
from numpy.typing import NDArray

from seq2sweep.config import VocabularyConfig
from seq2sweep.data import utf8, word_piece
from seq2sweep.data.treebank.symbols import Symbols
from seq2sweep.errors import UserError
from seq2sweep.paths import read_bytes, read_json

PAD, BOS, EOS, UNK = 0, 1, 2, 3
SPECIAL = ["<pad>", "<s>", "</s>", "<unk>"]
MODEL_NAME = "vocabulary.model"
JSON_NAME = "vocabulary.json"
SYMBOLS_NAME = "symbols.json"
"""Of the target's own vocabulary, where the target is trees."""

BPE = "bpe"
CHARACTERS = "characters"
MODEL_TYPES = {"unigram": "unigram", CHARACTERS: "char"}
"""SentencePiece's, of kinds that are not learned as bpe is."""

LONGEST_SENTENCE = 65_535
"""Bytes; a longer line is left out when the pieces are learned (but is encoded as any other)."""
MOST_FOR_UNIGRAM = 400_000
"""Sentences. Learning takes about 3.3 KiB of memory a sentence for unigram, so that its sample is
bounded here as well; for bpe and word_piece it takes memory for each different word alone."""


def token_type(size: int) -> np.dtype[Any]:
    """How the ids of a vocabulary of so many pieces are stored: little-endian, 2 or 4 bytes."""
    return np.dtype("<u2" if size <= 65_535 else "<u4")


class Vocabulary:
    """Word pieces with ids 0 (padding), 1 (begin), 2 (end of sentence), 3 (unknown), 4, 5, ...

    Pickled as its model, so that it can travel to worker processes.
    """

    def __init__(
        self, model: bytes, name: str = MODEL_NAME, symbols: Symbols | None = None
    ) -> None:
        """`model` is what `train` gives, and stays there; UserError names `name` if it is not.

        symbols: those of the target, where that is trees; else it shares the source's pieces.
        """
        self._engine: Any = _engine(model, name)
        """What cuts text into pieces and joins them."""
        self.model, self._name, self.symbols = model, name, symbols
        both = model + symbols.dump() if symbols else model
        self.fingerprint = hashlib.sha256(both).hexdigest()

    @classmethod
    def open(cls, folder: Path) -> Vocabulary:
        """Read vocabulary.model from the folder, and symbols.json where the target is trees; their
        sum must be that of vocabulary.json beside them.

        A file that is cut off may still be a vocabulary, of fewer pieces.
        """
        path = folder / MODEL_NAME
        vocabulary = cls(read_bytes(path), str(path), _symbols(folder / SYMBOLS_NAME))
        beside = folder / JSON_NAME
        if not beside.exists() and not beside.is_symlink():
            return vocabulary  # a vocabulary.model that was handed on alone
        if read_json(beside).get("sha256") != vocabulary.fingerprint:
            raise UserError(
                f"{path} is not what {JSON_NAME} beside it describes: remove {folder} and run "
                "`dvc repro`"
            )
        return vocabulary

    def __reduce__(self) -> tuple[type[Vocabulary], tuple[bytes, str, Symbols | None]]:
        return Vocabulary, (self.model, self._name, self.symbols)

    def write(self, folder: Path) -> None:
        """Write the files that `open` reads into a folder, less the description beside them."""
        (folder / MODEL_NAME).write_bytes(self.model)
        if self.symbols is not None:
            (folder / SYMBOLS_NAME).write_bytes(self.symbols.dump())

    def __len__(self) -> int:
        return len(self._engine)

    def encode(self, lines: Sequence[str], side: str = "source") -> list[list[int]]:
        """Token ids of each line, EOS at the end, no BOS. One thread."""
        if side == "target" and self.symbols is not None:
            return self.symbols.encode(lines)
        encoded: list[list[int]] = self._engine.encode(list(lines))
        return encoded

    def encode_flat(
        self, lines: Sequence[str], side: str = "source"
    ) -> tuple[NDArray[Any], NDArray[np.int32]]:
        """What `encode` gives, in a row: token ids [tokens] and the lengths [lines] of each line.

        The ids are of the type `token_type` of the larger one where the target has its own.
        """
        encoded = self.encode(lines, side)
        lengths = np.fromiter(map(len, encoded), np.int32, len(encoded))
        kind = token_type(max(len(self), len(self.symbols or ())))
        total = int(lengths.sum(dtype=np.int64))
        return np.fromiter(itertools.chain.from_iterable(encoded), kind, total), lengths

    def tokens(self, ids: Sequence[int], side: str = "source") -> list[str]:
        """Each token of a sequence as text, to be looked at.

        A word's first token begins with "▁"; a byte that is no visible character is as in <0xE4>.
        """
        own = self.symbols if side == "target" and self.symbols is not None else self._engine
        return [SPECIAL[i] if i < len(SPECIAL) else own.id_to_piece(i) for i in map(int, ids)]

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Text of each sequence of the target, up to its first EOS; an unknown token shows as
        U+2047. Of trees it is their symbols."""
        if self.symbols is not None:
            return self.symbols.decode(ids)
        said = (itertools.takewhile(lambda token: token != EOS, sequence) for sequence in ids)
        kept = [[int(token) for token in tokens if token not in (PAD, BOS)] for tokens in said]
        texts = self._engine.decode(kept)
        # A word's first piece brings a blank, and SentencePiece writes " ⁇ " with two of its own.
        return [" ".join(text.split()) for text in texts]


def _symbols(path: Path) -> Symbols | None:
    if not path.exists() and not path.is_symlink():
        return None
    try:
        return Symbols.load(read_bytes(path))
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}): remove it and run `dvc repro`") from None


def _engine(model: bytes, name: str) -> Any:
    """What the model file is of; a damaged one is a UserError."""
    if model == utf8.MODEL:
        return utf8.Bytes(special=len(SPECIAL), unknown=UNK, end=EOS)
    return _word_pieces(model, name) if model.startswith(b"{") else _sentence_pieces(model, name)


def _sentence_pieces(model: bytes, name: str) -> sentencepiece.SentencePieceProcessor:
    try:
        pieces = sentencepiece.SentencePieceProcessor(
            model_proto=model, add_eos=True, num_threads=1
        )
    except RuntimeError:
        raise UserError(f"{name} is damaged: remove it and run `dvc repro`") from None
    special = (pieces.pad_id(), pieces.bos_id(), pieces.eos_id(), pieces.unk_id())
    if special != (PAD, BOS, EOS, UNK):
        raise UserError(
            f"{name} is not a vocabulary of seq2sweep: padding, begin, end and unknown have "
            f"ids {special}, not {(PAD, BOS, EOS, UNK)}; remove it and run `dvc repro`"
        )
    return pieces


def _word_pieces(model: bytes, name: str) -> word_piece.WordPieces:
    try:
        pieces = word_piece.load(model)
    except ValueError as error:
        raise UserError(f"{name} is damaged ({error}): remove it and run `dvc repro`") from None
    if pieces[: len(SPECIAL)] != SPECIAL:
        raise UserError(
            f"{name} is not a vocabulary of seq2sweep: it begins with {pieces[: len(SPECIAL)]}, "
            f"not {SPECIAL}; remove it and run `dvc repro`"
        )
    return word_piece.WordPieces(pieces, special=len(SPECIAL), unknown=UNK, end=EOS)


def most_sentences(config: VocabularyConfig) -> int:
    """How many sentences to learn from at most: config.sentences, or what memory allows; of bytes
    there is nothing to learn."""
    if config.kind == utf8.KIND:
        return 0
    if config.kind == "unigram":
        return min(config.sentences, MOST_FOR_UNIGRAM)
    return config.sentences


def train(lines: Iterable[str], config: VocabularyConfig) -> bytes:
    """Learn the pieces; returns the model file: SentencePiece's, or for word_piece and bytes JSON.

    The bytes are a function of lines and config alone: one thread (with another number, unigram
    adds its probabilities in another order) and no path among the arguments. Learns from all the
    lines it is given. Raises UserError when there is no text, or when it is too small, or has too
    many characters, for config.size; but characters are config.size at most, the rarest left out,
    and bytes are as many as they are.
    """
    if config.kind == utf8.KIND:
        return utf8.MODEL
    # A word's first piece has a blank before it, as has a sentence; a blank of its own is enough
    # for characters.
    further: dict[str, Any] = {"add_dummy_prefix": False} if config.kind == CHARACTERS else {}
    # It learns nothing from a line with U+2585, which it writes for unknown ones.
    lines = (line.replace("\u2585", " ") for line in lines)
    model_type = MODEL_TYPES.get(config.kind, BPE)
    if model_type == BPE:
        lines = (f"{word}\t{count}" for word, count in _words(lines).items())
        further |= {"input_format": "tsv"}
    learned = _learned(lines, config, model_type=model_type, **further)
    if config.kind == word_piece.KIND:
        pieces = _sentence_pieces(learned, MODEL_NAME)
        return word_piece.dump([pieces.id_to_piece(i) for i in range(len(pieces))])
    return learned


def _words(lines: Iterable[str]) -> Counter[str]:
    """How often each word occurs, in the lines that SentencePiece would take.

    That is all its bpe looks at: whole sentences would give the same pieces, and take more memory.
    A tab, which it would keep inside a word, is a blank here.
    """
    words = Counter[str]()
    for line in lines:
        if 4 * len(line) <= LONGEST_SENTENCE or len(line.encode()) <= LONGEST_SENTENCE:
            words.update(line.rstrip("\r\n").replace("\t", " ").split(" "))
    return words


def _learned(lines: Iterable[str], config: VocabularyConfig, **further: Any) -> bytes:
    """SentencePiece's model file, less the format of its input."""
    # Imported here, as most who encode text learn nothing.
    from sentencepiece.sentencepiece_model_pb2 import ModelProto

    model = io.BytesIO()
    raised: list[BaseException] = []

    def watched() -> Iterator[str]:
        """The lines as SentencePiece takes them; it hides what happens in here."""
        try:
            yield from lines
        except BaseException as error:
            raised.append(error)
            raise

    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=watched(),
            model_writer=model,
            vocab_size=config.size,
            character_coverage=config.character_coverage,
            pad_id=PAD,
            bos_id=BOS,
            eos_id=EOS,
            unk_id=UNK,
            normalization_rule_name="identity",
            byte_fallback=config.byte_fallback,
            max_sentence_length=LONGEST_SENTENCE,
            num_threads=1,
            minloglevel=2,
            **further,
        )
    except RuntimeError as error:
        if raised:
            raise raised[0] from None
        raise _explained(error, config) from None
    proto = ModelProto.FromString(model.getvalue())
    proto.trainer_spec.ClearField("input_format")
    return bytes(proto.SerializeToString(deterministic=True))


def _explained(error: RuntimeError, config: VocabularyConfig) -> Exception:
    """SentencePiece tells what is wrong with text or size only in the text of its error."""
    message = str(error)
    if found := re.search(r"size too high .* value <= (\d+)", message):
        return UserError(
            f"vocabulary.size is {config.size} but this text supports at most "
            f"{found.group(1)}; lower it"
        )
    if found := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        also = " and turn off vocabulary.byte_fallback" if config.byte_fallback else ""
        return UserError(
            f"vocabulary.size is {config.size} but the characters of this text alone need "
            f"{found.group(1)}; raise it or lower vocabulary.character_coverage{also}"
        )
    if "!sentences_.empty()" in message:
        return UserError(
            "there is no text to learn word pieces from: every training line is empty, or longer "
            f"than {LONGEST_SENTENCE} bytes"
        )
    return error
