"""Beam search that can only write well-formed trees, each over exactly the words of its sentence.

Of w words, trees are w symbols of words, brackets that are closed by the symbol of the innermost
open one and have a word in them, and EOS when nothing is left: what `linearise` of
`data.treebank.linearisation` writes, so that `rebuild` has nothing to repair. Ids are those of
`data.treebank.symbols`.

Shapes: B sentences still open, K hypotheses each, V columns of the model's output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from seq2sweep.data.treebank.symbols import EOS, FIRST_OPENING, WORD


@dataclass(frozen=True)
class Trees:
    """What outputs are to be: trees over so many `words` of each sentence, with so many `labels`.

    labels, tags: those of the vocabulary, `len(symbols.labels)` and `len(symbols.tags)`. known: of
    each sentence `symbols.ids_of` its words. A word that is written as itself can be nothing else;
    others are, with tags, one of these, else XX. Which words there are is given, so with `known`
    the next one has the probability of all symbols of words together: that it is one. symbols: how
    many there are; columns of the model's output above are to spare. None: all are symbols.
    """

    words: Sequence[int]
    labels: int
    tags: int = 0
    known: Sequence[Sequence[int]] = ()
    symbols: int | None = None


class WellFormed:
    """Which symbols may follow each hypothesis of a beam search.

    A tree over w words with n brackets takes w + 2 n + 1 symbols, EOS included. So a limit on the
    length is a limit on n: each bracket that is opened within it can be closed within it. Where the
    limit is below w + 1, hypotheses are words only, and are cut.

    State of each hypothesis, [B, K]: words_left to write; brackets_left that may be opened; depth,
    how many are open; empty, whether the innermost has no word yet, which is so just after it was
    opened. closings [B, K, most brackets + 2]: what closes the open ones, at places 1 to depth;
    above them lies what is void. The state of a hypothesis with probability 0 means nothing.
    """

    def __init__(self, trees: Trees, longest: Sequence[int], device: torch.device) -> None:
        """longest: the most symbols of each sentence's output, EOS included.

        Raises ValueError when there are not as many as `trees.words`, or of a sentence not as many
        `known` as words.
        """
        if len(trees.words) != len(longest):
            raise ValueError(f"words of {len(trees.words)} sentences, but {len(longest)} sentences")
        if trees.known and [*map(len, trees.known)] != [*trees.words]:
            raise ValueError(f"{[*map(len, trees.known)]} words are known, of {[*trees.words]}")
        self._first_closing = FIRST_OPENING + trees.labels
        self._labels = trees.labels
        self._first_tag = self._first_closing + trees.labels
        self._words = slice(self._first_tag, self._first_tag + trees.tags)
        self._tags_and_words = slice(self._first_tag, trees.symbols)
        if not trees.tags:
            self._words = slice(WORD, WORD + 1)
        fit = [max(0, n - w - 1) // 2 for w, n in zip(trees.words, longest, strict=True)]
        self._deepest = max(fit)
        self.words_left = torch.tensor(trees.words, device=device).unsqueeze(1)
        self._known = _from_the_end(trees.known, device) if trees.known else None
        self.brackets_left = torch.tensor(fit, device=device).unsqueeze(1)
        self.depth = torch.zeros_like(self.words_left)
        self.closings = self.depth.new_zeros(len(fit), 1, self._deepest + 2)
        self.empty = self.depth.bool()

    def mask(self, logits: Tensor) -> None:
        """Set the log-probabilities [B, K, V] of all symbols that may not follow to minus
        infinity."""
        more, within = self.words_left > 0, self.depth > 0
        allowed = torch.zeros_like(logits, dtype=torch.bool)
        allowed[..., EOS] = ~(more | within)
        if self._known is None:
            allowed[..., self._words] = more.unsqueeze(-1)
        else:
            # Below 0 where a hypothesis of probability 0 went on with words.
            next_word = self._known.gather(1, self.words_left.clamp(min=0))
            allowed[..., self._words] = (more & next_word.eq(0)).unsqueeze(-1)
            # Where it is 0 this is PAD, and says no.
            allowed.scatter_(2, next_word.unsqueeze(-1), next_word.gt(0).unsqueeze(-1))
            self._any_word(logits, next_word.unsqueeze(-1))
        may_open = more & (self.brackets_left > 0)
        allowed[..., FIRST_OPENING : self._first_closing] = may_open.unsqueeze(-1)
        # With nothing open this is place 0, which holds PAD.
        innermost = self.closings.gather(2, self.depth.unsqueeze(-1))
        allowed.scatter_(2, innermost, (within & ~self.empty).unsqueeze(-1))
        logits.masked_fill_(~allowed, -torch.inf)

    def _any_word(self, logits: Tensor, next_word: Tensor) -> None:
        """Give the next word [B, K, 1], and tags, what all symbols of words have together: of
        log-probabilities, so that no rounding makes it more than all there is."""
        others = logits[..., self._tags_and_words]
        words = torch.cat([logits[..., WORD : WORD + 1], others], dim=-1)
        whole = words.logsumexp(-1, True).clamp(max=0)
        free = logits[..., self._words]
        free += whole - free.logsumexp(-1, True)
        kept = logits.gather(2, next_word)
        logits.scatter_(2, next_word, torch.where(next_word > 0, whole, kept))

    def select(self, sentences: Tensor, rows: Tensor, symbols: Tensor) -> None:
        """Keep these sentences [B_new], of each the hypotheses rows [B_new, K_new], and append.

        symbols [B_new, K_new]: what each hypothesis goes on with.
        """
        chosen = sentences.unsqueeze(1), rows
        if self._known is not None:
            self._known = self._known[sentences]
        words = symbols.eq(WORD) | (symbols >= self._first_tag)
        closes = (symbols >= self._first_closing) & ~words
        opens = (symbols >= FIRST_OPENING) & (symbols < self._first_closing)
        depth = self.depth[chosen]
        # Above what is open: it counts only if this is a bracket.
        self.closings = self.closings[chosen].scatter_(
            2, depth.unsqueeze(-1) + 1, (symbols + self._labels).unsqueeze(-1)
        )
        self.depth = (depth + opens.long() - closes.long()).clamp_(0, self._deepest)
        self.words_left = self.words_left[chosen] - words.long()
        self.brackets_left = self.brackets_left[chosen] - opens.long()
        self.empty = opens


def _from_the_end(known: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """[B, most words + 1]: of each sentence, at place n the symbol of the word with which n words
    are left to write; 0 at place 0, where none is."""
    most = max(map(len, known))
    rows = [[0, *reversed(ids), *[0] * (most - len(ids))] for ids in known]
    return torch.tensor(rows, device=device)
