"""Translations while they are being sought: as much of each as the search cannot take back.

A beam search may still change its mind, so that only what all hypotheses begin with is final: the
open ones, and of the finished ones the best, as the others stay behind it. Of that, all words but
the last, which may not be complete; at the end the rest. Greedy search has one hypothesis, so that
each word comes with the first piece of the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from seq2sweep.config import EvaluateConfig
from seq2sweep.data.vocabulary import Vocabulary
from seq2sweep.decode.beam import BeamSearch, Hypothesis, OurSearch, Translation
from seq2sweep.decode.grouping import prepare
from seq2sweep.errors import UserError
from seq2sweep.model.architecture import Architecture
from seq2sweep.model.products import laid_out


@dataclass(frozen=True)
class Part:
    """What the translation of a line, by its index, goes on with.

    text: to be added to the texts before it, with a blank before a word where one is due; may be
    empty. translation: the whole, with the last part of a line alone.
    """

    line: int
    text: str
    translation: Translation | None = None


def stream(
    model: Architecture,
    vocabulary: Vocabulary,
    lines: Sequence[str],
    config: EvaluateConfig,
    device: torch.device | None = None,
) -> Iterator[Part]:
    """Parts of the translations of lines, as they become final; those of a line in their order.

    The texts of a line's parts, joined, are what `decode.beam.translate` gives, which says how
    lines are cut and grouped. Lines of a group are translated side by side. May be closed at any
    time, and go on in another thread. Raises UserError for a vocabulary of trees.
    """
    if vocabulary.symbols is not None:
        raise UserError("trees are not streamed, as a word of theirs says nothing by itself")
    encoded, groups = prepare(model, vocabulary, lines, config)
    for i in range(len(lines)):
        if i not in encoded:
            yield Part(i, "", Translation("", 0.0))
    begin = OurSearch(model, config, device).begin
    # What a search's products keep, kept over all steps though others may compute in between.
    products: dict[Any, Any] = {}
    for group in groups:
        with torch.inference_mode(), laid_out(products):
            running = begin([encoded[i] for i in group])
        said = [_Said(vocabulary, i) for i in group]
        while running.sentences:
            with torch.inference_mode(), laid_out(products):
                before = [sentence for sentence in running.sentences if not sentence.done]
                running.step()
                final = _final(running)
            for sentence in before:
                of = said[sentence.index]
                if sentence.done:
                    yield of.end(running.results[sentence.index][0])
                elif part := of.go_on(final[sentence.index]):
                    yield part


def _final(running: BeamSearch) -> dict[int, list[int]]:
    """The piece ids that the result of each open sentence, by its index, is sure to begin with."""
    history = running.history
    # One of probability 0 can neither go on nor end. The first one never is.
    impossible = running.log_probabilities.isneginf().unsqueeze(-1).cpu()
    same = (history.eq(history[:, :1]) | impossible).all(dim=1)
    counts = same.long().cumprod(dim=1).sum(dim=1).tolist()
    found = {}
    for row, sentence in enumerate(running.sentences):
        pieces = history[row, 0, 1 : counts[row]].tolist()
        if sentence.finished:
            pieces = _shared(pieces, sentence.ranked()[0].pieces)
        found[sentence.index] = pieces
    return found


def _shared(first: list[int], second: list[int]) -> list[int]:
    """What both begin with."""
    shared = 0
    while shared < min(len(first), len(second)) and first[shared] == second[shared]:
        shared += 1
    return first[:shared]


class _Said:
    """What was given of a line's translation so far."""

    def __init__(self, vocabulary: Vocabulary, line: int) -> None:
        self._vocabulary, self._line = vocabulary, line
        self._text, self._pieces = "", 0

    def go_on(self, pieces: list[int]) -> Part | None:
        """The whole words that these final pieces add, if any."""
        if len(pieces) <= self._pieces:
            return None
        self._pieces = len(pieces)
        # A blank follows all words but the last: nothing that comes later changes them.
        text = self._vocabulary.decode([pieces])[0].rpartition(" ")[0]
        if len(text) <= len(self._text):
            return None
        return self._part(text)

    def end(self, best: Hypothesis) -> Part:
        """The rest."""
        text = self._vocabulary.decode([best.pieces])[0]
        return self._part(text, Translation(text, best.score, best.pieces))

    def _part(self, text: str, translation: Translation | None = None) -> Part:
        new, self._text = text[len(self._text) :], text
        return Part(self._line, new, translation)
