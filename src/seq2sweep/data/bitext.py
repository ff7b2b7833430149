"""Encoded sentence pairs on disk, read by memory map.

Format 1. A folder holds header.json and for each split and side two flat little-endian files:
`{split}.{side}.tokens`, the token ids of all sentences in a row (uint16, or uint32 for more than
65535 pieces), and `{split}.{side}.offsets`, int64 [sentences + 1]: sentence i is
tokens[offsets[i]:offsets[i + 1]]. Every sentence ends with EOS, so none is empty.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seq2sweep.data.files import SIDES, sha256
from seq2sweep.data.vocabulary import UNK, Vocabulary
from seq2sweep.errors import UserError

FORMAT = 1
HEADER_NAME = "header.json"
SENTENCES_PER_CHUNK = 10_000


@dataclass(frozen=True)
class Side:
    """One language of a split: tokens [tokens] and offsets [sentences + 1], both memory maps."""

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
        that would read them whole). Raises UserError for anything missing or not matching.
        """
        header = read_header(folder)
        if split not in header["splits"]:
            known = ", ".join(header["splits"])
            raise UserError(f"{folder / HEADER_NAME} has no split {split}; it has {known}")
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


def read_header(folder: Path) -> dict[str, Any]:
    """header.json of an encoded folder; UserError if missing, damaged or of another format."""
    path = folder / HEADER_NAME
    try:
        header = json.loads(path.read_text(encoding="utf-8"))
        version = header["format"]
    except FileNotFoundError:
        raise UserError(f"{path} is missing: run `dvc repro`, which makes it") from None
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{path} is damaged: remove {folder} and run `dvc repro`") from None
    if version != FORMAT:
        raise UserError(
            f"{path} has format {version}, this program reads {FORMAT}: "
            f"remove {folder} and run `dvc repro`"
        )
    return dict(header)


def write_side(
    folder: Path, split: str, side: str, lines: Iterable[str], vocabulary: Vocabulary
) -> dict[str, Any]:
    """Encode the lines of one side of a split into its two files, in chunks.

    Returns counts: sentences, tokens (EOS included), unknown_share (of the tokens, EOS not
    counted among either).
    """
    kind = _token_type(len(vocabulary))
    sentences = tokens = unknown = 0
    with (
        (folder / f"{split}.{side}.tokens").open("wb") as token_stream,
        (folder / f"{split}.{side}.offsets").open("wb") as offset_stream,
    ):
        offset_stream.write(np.zeros(1, "<i8").tobytes())
        for chunk in _chunks(lines, SENTENCES_PER_CHUNK):
            encoded = vocabulary.encode(chunk)
            lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
            flat = np.fromiter(itertools.chain.from_iterable(encoded), kind, int(lengths.sum()))
            token_stream.write(flat.tobytes())
            offset_stream.write((tokens + np.cumsum(lengths)).astype("<i8").tobytes())
            sentences += len(encoded)
            tokens += len(flat)
            unknown += int(np.count_nonzero(flat == UNK))
    return {
        "sentences": sentences,
        "tokens": tokens,
        "unknown_share": unknown / max(1, tokens - sentences),
    }


def make_header(
    folder: Path,
    vocabulary: Vocabulary,
    languages: dict[str, str],
    counts: dict[str, dict[str, dict[str, Any]]],
) -> dict[str, Any]:
    """The header of the files in `folder`; `counts[split][side]` is what `write_side` returned.

    `fingerprint` is the identity of the data: sha256 over names and sums of all files.
    """
    names = [
        f"{split}.{side}.{part}"
        for split in counts
        for side in SIDES
        for part in ("tokens", "offsets")
    ]
    described = {
        name: {"bytes": (folder / name).stat().st_size, "sha256": sha256(folder / name)}
        for name in names
    }
    identity = "".join(f"{name} {described[name]['sha256']}\n" for name in sorted(names))
    return {
        "format": FORMAT,
        "fingerprint": hashlib.sha256(identity.encode()).hexdigest(),
        "vocabulary": {"fingerprint": vocabulary.fingerprint, "size": len(vocabulary)},
        "languages": languages,
        "splits": {
            split: {
                "sentences": sides["source"]["sentences"],
                **{
                    side: {key: sides[side][key] for key in ("tokens", "unknown_share")}
                    for side in SIDES
                },
            }
            for split, sides in counts.items()
        },
        "files": described,
    }


def _open_side(folder: Path, header: dict[str, Any], split: str, side: str) -> Side:
    paths = {part: folder / f"{split}.{side}.{part}" for part in ("tokens", "offsets")}
    for path in paths.values():
        expected = header["files"][path.name]["bytes"]
        found = path.stat().st_size if path.exists() else None
        if found != expected:
            state = "missing" if found is None else f"{found} bytes long instead of {expected}"
            raise UserError(f"{path} is {state}: remove {folder} and run `dvc repro`")
    # As plain arrays: slicing the memmap class itself is several times slower.
    kind = _token_type(header["vocabulary"]["size"])
    tokens = np.asarray(np.memmap(paths["tokens"], kind, mode="r"))
    offsets = np.asarray(np.memmap(paths["offsets"], np.dtype("<i8"), mode="r"))
    sentences = header["splits"][split]["sentences"]
    if len(offsets) != sentences + 1 or offsets[-1] != len(tokens):
        path = paths["offsets"]
        raise UserError(f"{path} does not fit its tokens: remove {folder} and run `dvc repro`")
    return Side(tokens, offsets, np.diff(offsets).astype(np.int32))


def _token_type(vocabulary_size: int) -> np.dtype[Any]:
    return np.dtype("<u2" if vocabulary_size <= 65_535 else "<u4")


def _chunks(lines: Iterable[str], size: int) -> Iterator[list[str]]:
    iterator = iter(lines)
    while chunk := list(itertools.islice(iterator, size)):
        yield chunk
