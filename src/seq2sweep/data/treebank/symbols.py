"""The closed vocabulary of the symbols that trees are written as.

Ids: 0 to 3 as those of any vocabulary, WORD, then an opening bracket for each label, then the
closing ones in the same order. So a model's output layer has some sixty columns, not thousands.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Sequence

from seq2sweep.data.treebank import linearisation
from seq2sweep.data.treebank.trees import clean, parse_tree
from seq2sweep.errors import UserError

EOS, UNKNOWN, WORD, FIRST_OPENING = 2, 3, 4, 5
KIND = "trees"


class Symbols:
    """Trees, one a line, as ids of symbols, and ids as text such as `(S XX )S`."""

    def __init__(self, labels: Sequence[str]) -> None:
        self.labels = tuple(labels)
        brackets = itertools.chain(("(" + label for label in labels), (")" + x for x in labels))
        self._texts = ["<pad>", "<s>", "</s>", "⁇", linearisation.WORD, *brackets]
        self._ids = {text: i for i, text in enumerate(self._texts) if i >= WORD}

    def __len__(self) -> int:
        return len(self._texts)

    def encode(self, trees: Sequence[str]) -> list[list[int]]:
        """Ids of each tree, EOS last; a label that is none of the vocabulary's is UNKNOWN."""
        return [
            [
                *(
                    self._ids.get(s, UNKNOWN)
                    for s in linearisation.linearise(clean(parse_tree(tree)))
                ),
                EOS,
            ]
            for tree in trees
        ]

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """The symbols of each sequence up to its first EOS, with blanks between."""
        said = (itertools.takewhile(lambda i: i != EOS, sequence) for sequence in ids)
        return [" ".join(self._texts[i] for i in sequence) for sequence in said]

    def dump(self) -> bytes:
        """The file of them: JSON."""
        return json.dumps({"kind": KIND, "labels": self.labels}, indent=0).encode() + b"\n"

    @classmethod
    def load(cls, content: bytes) -> Symbols:
        """Of such a file. Raises ValueError when it is not what `dump` gives."""
        described = json.loads(content)
        if not isinstance(described, dict) or described.get("kind") != KIND:
            raise ValueError(f"not of kind {KIND}")
        labels = described.get("labels")
        if not isinstance(labels, list) or not all(
            isinstance(label, str) and re.fullmatch(r"[^\s()]+", label) for label in labels
        ):
            raise ValueError("labels are not a list of texts without blanks and brackets")
        if len(set(labels)) < len(labels):
            raise ValueError("a label appears twice")
        return cls(labels)

    @classmethod
    def learn(cls, trees: Iterable[str]) -> Symbols:
        """Those of the labels of these trees, sorted. Raises UserError where there is no tree."""
        labels: set[str] = set()
        none = True
        for tree in trees:
            none = False
            labels.update(bracket.label for bracket in clean(parse_tree(tree)).brackets)
        if none:
            raise UserError("there is no tree to learn labels from")
        return cls(sorted(labels))
