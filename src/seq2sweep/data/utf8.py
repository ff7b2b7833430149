"""The 256 bytes of UTF-8 as tokens: nothing is learned, and there is no text without them.

A byte is the token of its number after the special ones, so that one character is one to four
tokens. Clean text comes back exactly; bytes that are no UTF-8, which a model can write, as U+FFFD.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seq2sweep.data.word_piece import WORD_START

KIND = "bytes"
MODEL = b'{"kind": "bytes"}\n'
"""The model file, of every vocabulary of this kind."""
COUNT = 256
UNKNOWN_SURFACE = "⁇".encode()


class Bytes:
    """Writes text as its bytes, and joins them again."""

    def __init__(self, special: int, unknown: int, end: int) -> None:
        """Byte b has id special + b. `unknown` and `end` are two of the `special` ids."""
        self._special, self._end = special, end
        self._bytes = [b""] * special + [bytes([byte]) for byte in range(COUNT)]
        self._bytes[unknown] = UNKNOWN_SURFACE

    def __len__(self) -> int:
        return len(self._bytes)

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Ids of each line, `end` last. Half of a surrogate pair, which is no text, is a "?"."""
        encoded = []
        for line in lines:
            numbers = np.frombuffer(line.encode(errors="replace"), np.uint8)
            encoded.append([*(numbers.astype(np.int64) + self._special).tolist(), self._end])
        return encoded

    def id_to_piece(self, number: int) -> str:
        """The byte of an id, as SentencePiece writes its own: as a character, or as in <0xE4>."""
        (byte,) = self._bytes[number]
        if byte == ord(" "):
            return WORD_START
        return chr(byte) if 0x20 < byte < 0x7F else f"<0x{byte:02X}>"

    def decode(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        """Text of each sequence of ids; an unknown token shows as U+2047."""
        return [
            b"".join([self._bytes[i] for i in sequence]).decode(errors="replace")
            for sequence in sequences
        ]
