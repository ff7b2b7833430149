"""The closed vocabulary of the symbols that trees are written as.

Ids: 0 to 3 as those of any vocabulary, WORD, then an opening bracket for each label, then the
closing ones in the same order, then tags, where words are written as those. So a model's output
layer has some sixty columns, or a hundred, not thousands.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence

from seq2sweep.data.treebank import linearisation
from seq2sweep.data.treebank.trees import Tree, clean, parse_tree
from seq2sweep.errors import UserError

EOS, UNKNOWN, WORD, FIRST_OPENING = 2, 3, 4, 5
KIND = "trees"


class Symbols:
    """Trees, one a line, as ids of symbols, and ids as text such as `(S XX )S`.

    tags: what a word is written as, each the tag of its leaf; none: all words are WORD, XX as text.
    """

    def __init__(self, labels: Sequence[str], tags: Sequence[str] = ()) -> None:
        self.labels, self.tags = tuple(labels), tuple(tags)
        brackets = [bracket + label for bracket in "()" for label in labels]
        self._texts = [*linearisation.SPECIAL, linearisation.WORD, *brackets, *tags]
        self._ids = {text: i for i, text in enumerate(brackets, FIRST_OPENING)}
        self._tags = {tag: i for i, tag in enumerate(tags, FIRST_OPENING + len(brackets))}

    def __len__(self) -> int:
        return len(self._texts)

    def encode(self, trees: Sequence[str]) -> list[list[int]]:
        """Ids of each tree, EOS last; UNKNOWN for a label or tag that the vocabulary has not."""
        return [[*self._encoded(clean(parse_tree(tree))), EOS] for tree in trees]

    def _encoded(self, tree: Tree) -> Iterator[int]:
        tags = iter(tree.tags)
        for symbol in linearisation.linearise(tree):
            if symbol != linearisation.WORD:
                yield self._ids.get(symbol, UNKNOWN)
            else:
                tag = next(tags)
                yield self._tags.get(tag, UNKNOWN) if self.tags else WORD

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """The symbols of each sequence up to its first EOS, with blanks between."""
        said = (itertools.takewhile(lambda i: i != EOS, sequence) for sequence in ids)
        return [" ".join(self._texts[i] for i in sequence) for sequence in said]

    def dump(self) -> bytes:
        """The file of them: JSON."""
        described = {"kind": KIND, "labels": self.labels, "tags": self.tags}
        return json.dumps(described, indent=0).encode() + b"\n"

    @classmethod
    def load(cls, content: bytes) -> Symbols:
        """Of such a file. Raises ValueError when it is not what `dump` gives."""
        described = json.loads(content)
        if not isinstance(described, dict) or described.get("kind") != KIND:
            raise ValueError(f"not of kind {KIND}")
        found = []
        for key in ("labels", "tags"):
            texts = described.get(key)
            if not isinstance(texts, list) or not all(
                isinstance(text, str) and re.fullmatch(r"[^\s()]+", text) for text in texts
            ):
                raise ValueError(f"{key} are not a list of texts without blanks and brackets")
            if len(set(texts)) < len(texts):
                raise ValueError(f"one of {key} appears twice")
            found.append(texts)
        return cls(*found)

    @classmethod
    def learn(cls, trees: Iterable[str], *, tags: bool = False) -> Symbols:
        """Those of the labels, and tags, of these trees, sorted. Raises UserError where there is no
        tree."""
        labels: set[str] = set()
        found: set[str] = set()
        for line in trees:
            tree = clean(parse_tree(line))
            labels.update(bracket.label for bracket in tree.brackets)
            found.update(tree.tags)
        if not found:
            raise UserError("there is no tree to learn labels from")
        return cls(sorted(labels), sorted(found) if tags else ())
