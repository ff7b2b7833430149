"""The closed vocabulary of the symbols that trees are written as.

Ids: 0 to 3 as those of any vocabulary, WORD, then an opening bracket for each label, then the
closing ones in the same order, then tags, where words are written as those, then the words that are
written as themselves. So a model's output layer has some sixty columns, or a few hundred.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from seq2sweep.data.treebank import linearisation
from seq2sweep.data.treebank.trees import Tree, clean, parse_tree
from seq2sweep.errors import UserError

EOS, UNKNOWN, WORD, FIRST_OPENING = 2, 3, 4, 5
KIND = "trees"


class Symbols:
    """Trees, one a line, as ids of symbols, and ids as text such as `(S XX )S`.

    tags: what a word is written as, each the tag of its leaf; none: all words are WORD, XX as text.
    words: those that are written as themselves; their tag is not said, so as text they are XX too.
    """

    def __init__(
        self, labels: Sequence[str], tags: Sequence[str] = (), words: Sequence[str] = ()
    ) -> None:
        self.labels, self.tags, self.words = tuple(labels), tuple(tags), tuple(words)
        brackets = [bracket + label for bracket in "()" for label in labels]
        untagged = [linearisation.WORD] * len(words)
        self._texts = [*linearisation.SPECIAL, linearisation.WORD, *brackets, *tags, *untagged]
        self._ids = {text: i for i, text in enumerate(brackets, FIRST_OPENING)}
        first = FIRST_OPENING + len(brackets)
        self._tags = {tag: i for i, tag in enumerate(tags, first)}
        self._words = {word: i for i, word in enumerate(words, first + len(tags))}

    def __len__(self) -> int:
        return len(self._texts)

    def encode(self, trees: Sequence[str]) -> list[list[int]]:
        """Ids of each tree, EOS last; UNKNOWN for a label or tag that the vocabulary has not."""
        return [[*self._encoded(clean(parse_tree(tree))), EOS] for tree in trees]

    def _encoded(self, tree: Tree) -> Iterator[int]:
        leaves = zip(self.ids_of(tree.words), tree.tags, strict=True)
        for symbol in linearisation.linearise(tree):
            if symbol != linearisation.WORD:
                yield self._ids.get(symbol, UNKNOWN)
            else:
                own, tag = next(leaves)
                yield own or (self._tags.get(tag, UNKNOWN) if self.tags else WORD)

    def ids_of(self, words: Sequence[str]) -> list[int]:
        """What each word is written as if that is itself, else 0."""
        return [self._words.get(word, 0) for word in words]

    def id_to_piece(self, number: int) -> str:
        """A symbol as text, as `decode` has it; a word that is written as itself is that word."""
        first = len(self._texts) - len(self.words)
        return self.words[number - first] if first <= number < len(self) else self._text(number)

    def _text(self, number: int) -> str:
        """Of a model's columns to spare, which are no symbols, that of what is unknown."""
        return self._texts[number if number < len(self) else UNKNOWN]

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """The symbols of each sequence up to its first EOS, with blanks between."""
        said = (itertools.takewhile(lambda i: i != EOS, sequence) for sequence in ids)
        return [" ".join(map(self._text, sequence)) for sequence in said]

    def dump(self) -> bytes:
        """The file of them: JSON."""
        described = {"kind": KIND, "labels": self.labels, "tags": self.tags}
        described |= {"words": self.words} if self.words else {}
        return json.dumps(described, indent=0).encode() + b"\n"

    @classmethod
    def load(cls, content: bytes) -> Symbols:
        """Of such a file. Raises ValueError when it is not what `dump` gives."""
        try:
            described = json.loads(content)
        except RecursionError:
            raise ValueError("nested too deep") from None
        if not isinstance(described, dict) or described.get("kind") != KIND:
            raise ValueError(f"not of kind {KIND}")
        found = []
        # Within a tree a bracket may be without a label.
        for key, shape in (("labels", r"[^\s()]*"), ("tags", r"[^\s()]+"), ("words", r"[^\s()]+")):
            texts = described.get(key, [] if key == "words" else None)
            if not isinstance(texts, list) or not all(
                isinstance(text, str) and re.fullmatch(shape, text, re.ASCII) for text in texts
            ):
                raise ValueError(f"{key} are not a list of texts without blanks and brackets")
            if len(set(texts)) < len(texts):
                raise ValueError(f"one of {key} appears twice")
            found.append(texts)
        return cls(*found)

    @classmethod
    def learn(cls, trees: Iterable[str], *, tags: bool = False, words: int = 0) -> Symbols:
        """Those of the labels, and tags, of these trees, sorted, and of their so many most frequent
        words, those first. Raises UserError where there is no tree."""
        labels: set[str] = set()
        found: set[str] = set()
        counts: Counter[str] = Counter()
        for line in trees:
            tree = clean(parse_tree(line))
            labels.update(bracket.label for bracket in tree.brackets)
            found.update(tree.tags)
            counts.update(tree.words)
        if not found:
            raise UserError("there is no tree to learn labels from")
        # Of words that are as frequent, the first in the alphabet.
        frequent = sorted(counts, key=lambda word: (-counts[word], word))[:words]
        return cls(sorted(labels), sorted(found) if tags else (), frequent)
