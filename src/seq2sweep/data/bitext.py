"""Encoded sentence pairs on disk, read by memory map.

Format 2. A folder holds for each split a header, `{split}.json`, and for each side three flat
little-endian files: `{split}.{side}.tokens`, the token ids of all sentences in a row (uint16, or
uint32 for more than 65535 pieces, or symbols); `{split}.{side}.lengths`, int32 [sentences]; and
`{split}.{side}.offsets`, int64 [sentences + 1]: sentence i is tokens[offsets[i]:offsets[i + 1]].
Every sentence ends with EOS, so none is empty.

A split knows nothing of the others: another test set leaves the training data what it is, unless a
training pair has one of its sentences, or one of the old set's: `prepare` drops those.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seq2sweep.data.files import FILE, SIDES, describe, header_name
from seq2sweep.data.vocabulary import UNK, Vocabulary, token_type
from seq2sweep.errors import UserError
from seq2sweep.parallel import Mapper, serial
from seq2sweep.paths import REPRO, mismatch, open_regular, read_json
from seq2sweep.storage.atomic import sha256, write_json

FORMAT = 2
PARTS = ("tokens", "lengths", "offsets")
BYTES_PER_CHUNK = 1 << 20
"""Of text: some 10 000 sentences, a fraction of a second of work."""

_SHAPE = {
    "format": int,
    "fingerprint": str,
    "vocabulary": {"fingerprint": str, "size": int},
    "languages": dict.fromkeys(SIDES, str),
    "text": dict.fromkeys(SIDES, str),
    "sentences": int,
    **{side: {"tokens": int, "unknown_share": float} for side in SIDES},
}


@dataclass(frozen=True)
class Side:
    """One language of a split, all of it memory maps.

    tokens [tokens], offsets int64 [sentences + 1], lengths int32 [sentences].
    """

    tokens: NDArray[Any]
    offsets: NDArray[np.int64]
    lengths: NDArray[np.int32]

    def __getitem__(self, i: int) -> NDArray[Any]:
        return self.tokens[self.offsets[i] : self.offsets[i + 1]]


class Bitext:
    """The pairs of one split: read-only, memory mapped, cheap to open in every worker."""

    def __init__(self, header: dict[str, Any], source: Side, target: Side) -> None:
        self.header = header
        self.sides = {"source": source, "target": target}
        self.source_lengths = source.lengths
        self.target_lengths = target.lengths

    @classmethod
    def open(cls, folder: Path, split: str) -> Bitext:
        """Map a split of an encoded folder.

        Checks the format version and the sizes of the files against the header (not their sums:
        files.verify reads them whole). Raises UserError for anything missing or not matching.
        """
        header = read_header(folder, split)
        source, target = (_open_side(folder, header, split, side) for side in SIDES)
        return cls(header, source, target)

    def __len__(self) -> int:
        return len(self.source_lengths)

    def source(self, i: int) -> NDArray[Any]:
        """Token ids [source_lengths[i]] of sentence i, EOS last."""
        return self.sides["source"][i]

    def target(self, i: int) -> NDArray[Any]:
        """Token ids [target_lengths[i]] of sentence i, EOS last."""
        return self.sides["target"][i]


def require_positions(bitext: Bitext, split: str, most: int) -> None:
    """Raise UserError where a sentence has more tokens than a model has positions, `most`."""
    for side, lengths in (("source", bitext.source_lengths), ("target", bitext.target_lengths)):
        line = int(lengths.argmax())
        if lengths[line] > most:
            mend = "leave it out of the set"
            if split == "train":
                mend = "leave it out (prepare.max_words, where it is not a tree)"
            raise UserError(
                f"line {line + 1} of the {split} set has {lengths[line]} tokens as {side}, and the "
                f"model's learned positions are for {most}: {mend}, or use a model without such "
                "a limit: model.architecture bytenet, recurrent, or transformer with "
                "model.positions sinusoidal"
            )


def read_header(folder: Path, split: str) -> dict[str, Any]:
    """Header of a split; UserError if it is missing, damaged or of another format."""
    path = folder / header_name(split)
    header: dict[str, Any] = read_json(path)
    remedy = f"remove {folder} and run `dvc repro`"
    if "format" in header and header["format"] != FORMAT:
        raise UserError(
            f"{path} has format {header['format']}, this program reads {FORMAT}: {remedy}"
        )
    if wrong := mismatch(header, _SHAPE | {"files": dict.fromkeys(_names(split), FILE)}):
        raise UserError(f"{path} is damaged ({wrong}): {remedy}")
    return header


def read_training_header(folder: Path) -> dict[str, Any]:
    """Header of the training split, its fingerprint that of all that training reads: valid too."""
    train, valid = (read_header(folder, split) for split in ("train", "valid"))
    both = f"{train['fingerprint']}\n{valid['fingerprint']}\n"
    return train | {"fingerprint": hashlib.sha256(both.encode()).hexdigest()}


def write_split(
    folder: Path,
    split: str,
    texts: dict[str, Path],
    vocabulary: Vocabulary,
    languages: dict[str, str],
    mapper: Mapper = serial,
    on_sentences: Callable[[int], object] = lambda sentences: None,
) -> dict[str, Any]:
    """Encode the clean text of both sides into a split's files; returns its header.

    texts: the file of each side, one sentence a line. The files are the same for any `mapper`;
    at most a few chunks are in memory. `on_sentences` hears how many more are done. Raises
    UserError when the sides have different numbers of sentences.
    """
    names = _names(split)
    counts = {side: {"sentences": 0, "tokens": 0, "unknown": 0} for side in SIDES}
    with contextlib.ExitStack() as stack:
        streams = {name: stack.enter_context((folder / name).open("wb")) for name in names}
        for side in SIDES:
            streams[f"{split}.{side}.offsets"].write(np.zeros(1, "<i8").tobytes())
        encode = functools.partial(_encode, vocabulary)
        # Both sides in one go: starting processes takes about as long as 20 000 sentences.
        for side, tokens, lengths in mapper(encode, _chunks(texts)):
            count = counts[side]
            ends = count["tokens"] + np.cumsum(lengths, dtype=np.int64)
            for part, values in zip(PARTS, (tokens, lengths, ends.astype("<i8")), strict=True):
                streams[f"{split}.{side}.{part}"].write(values.tobytes())
            count["sentences"] += len(lengths)
            count["tokens"] += len(tokens)
            count["unknown"] += int(np.count_nonzero(tokens == UNK))
            on_sentences(len(lengths))
    source, target = (counts[side]["sentences"] for side in SIDES)
    if source != target:
        raise UserError(
            f"{texts['source']} has {source} sentences but {texts['target']} has {target}: "
            f"remove {texts['source'].parent} and run `dvc repro`"
        )
    described = describe(folder, names)
    identity = "".join(f"{name} {described[name]['sha256']}\n" for name in sorted(names))
    header = {
        "format": FORMAT,
        "fingerprint": hashlib.sha256(identity.encode()).hexdigest(),
        "vocabulary": {"fingerprint": vocabulary.fingerprint, "size": len(vocabulary)},
        "languages": languages,
        "text": {side: sha256(texts[side]) for side in SIDES},
        "sentences": source,
    }
    if vocabulary.symbols is not None:
        header["symbols"] = len(vocabulary.symbols)
    for side, count in counts.items():  # EOS is a token here, but not one that can be unknown
        known = max(1, count["tokens"] - count["sentences"])
        header[side] = {"tokens": count["tokens"], "unknown_share": count["unknown"] / known}
    header["files"] = described
    write_json(folder / header_name(split), header)
    return header


def _names(split: str) -> list[str]:
    """Of the files of a split, besides its header."""
    return [f"{split}.{side}.{part}" for side in SIDES for part in PARTS]


_Chunk = tuple[str, str, bytes]
"""Side, name of the file, some whole lines of it."""


def _chunks(texts: dict[str, Path]) -> Iterator[_Chunk]:
    """The text of all sides in pieces of whole lines, not decoded: that is left to the workers."""
    for side, path in texts.items():
        with open_regular(path, REPRO) as stream:
            while lines := stream.readlines(BYTES_PER_CHUNK):
                yield side, str(path), b"".join(lines)


def _encode(vocabulary: Vocabulary, chunk: _Chunk) -> tuple[str, NDArray[Any], NDArray[np.int32]]:
    """Side, token ids of all lines in a row, and the length of each line."""
    side, name, block = chunk
    try:
        lines = block.decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError:
        raise UserError(f"{name} is not UTF-8: remove it and run `dvc repro`") from None
    tokens, lengths = vocabulary.encode_flat(lines, side)
    return side, tokens, lengths.astype("<i4", copy=False)


def _open_side(folder: Path, header: dict[str, Any], split: str, side: str) -> Side:
    paths = {part: folder / f"{split}.{side}.{part}" for part in PARTS}
    for path in paths.values():
        expected = header["files"][path.name]["bytes"]
        found = path.stat().st_size if path.exists() else None
        if found != expected:
            state = "missing" if found is None else f"{found} bytes long instead of {expected}"
            raise UserError(f"{path} is {state}: remove {folder} and run `dvc repro`")
    # As plain arrays: slicing the memmap class itself is several times slower.
    kinds = {
        "tokens": token_type(max(header["vocabulary"]["size"], header.get("symbols", 0))),
        "lengths": np.dtype("<i4"),
        "offsets": np.dtype("<i8"),
    }
    tokens, lengths, offsets = (
        np.asarray(np.memmap(paths[part], kinds[part], mode="r")) for part in PARTS
    )
    if len(offsets) != len(lengths) + 1 or offsets[-1] != len(tokens):
        path = paths["offsets"]
        raise UserError(f"{path} does not fit its tokens: remove {folder} and run `dvc repro`")
    return Side(tokens, offsets, lengths)
