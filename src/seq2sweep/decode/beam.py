"""Beam search with the paper's length penalty (section 6.1).

A hypothesis Y scores log P(Y | X) / lp(Y) with lp(Y) = ((5 + |Y|) / 6) ** alpha (Wu et al. 2016,
equation 14), |Y| counting the end-of-sentence piece. Beam 1 is greedy search.

Shapes: B sentences still open, K hypotheses each, V pieces in the vocabulary.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from seq2sweep.config import EvaluateConfig
from seq2sweep.data.vocabulary import BOS, EOS, PAD, Vocabulary
from seq2sweep.decode.continuations import continuations, extended, to_cpu
from seq2sweep.decode.grouping import prepare
from seq2sweep.decode.well_formed import Trees, WellFormed
from seq2sweep.errors import UserError
from seq2sweep.hardware import memory_by
from seq2sweep.model.architecture import Architecture
from seq2sweep.model.products import laid_out
from seq2sweep.parallel import Mapper, serial
from seq2sweep.train.allocator import keep_memory

Penalty = Literal["paper", "power"]
Stopping = Literal["exact", "own_length"]

SHARE_TO_LEAVE = 1 / 8
"""Of the sentences in a batch, when so many are done they leave it: that copies all the others."""
NO_NUMBERS = "the model's outputs are NaN: its training has diverged"


@dataclass(frozen=True)
class Hypothesis:
    """Piece ids, EOS last unless cut for length, and the length-normalised log-probability."""

    pieces: list[int]
    score: float


@dataclass(frozen=True)
class Translation:
    """A translation as text, its length-normalised log-probability in nats, and its piece ids."""

    text: str
    score: float
    pieces: Sequence[int] = ()


def length_penalty(length: int, alpha: float, kind: Penalty = "paper") -> float:
    """paper: ((5 + length) / 6) ** alpha. power: length ** alpha, as in fairseq (its `lenpen`)."""
    return float(((5 + length) / 6 if kind == "paper" else length) ** alpha)


class Engine(Protocol):
    """A beam search: hypotheses of each sentence of piece ids, at most `n_best`, best first."""

    def __call__(self, sentences: list[list[int]], *, n_best: int) -> list[list[Hypothesis]]: ...


Group = tuple[list[list[int]], Trees | None]
"""Sentences of token ids that are decoded together, and what their outputs are to be."""


@dataclass
class OurSearch:
    """`BeamSearch` as an Engine, with the options of `config`; on any machine if device is None.
    on_step: called after each step. mend: where several sentences, or one, are refused memory.

    With `evaluate.precision: bf16` it searches with a copy of the model in bfloat16, or with the
    model itself if it is in that, whose log-probabilities are still made in float32.
    """

    model: Architecture
    config: EvaluateConfig
    device: torch.device | None = None
    on_step: Callable[[], object] | None = None
    mend: tuple[str, str] = "lower evaluate.tokens_per_batch", "lower evaluate.beam"
    _in_bf16: Architecture | None = field(default=None, init=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """For another machine, which may have no GPU."""
        model = copy.deepcopy(self.model).cpu()
        return vars(self) | {"model": model, "device": None, "_in_bf16": None}

    def __call__(
        self, sentences: list[list[int]], *, n_best: int, trees: Trees | None = None
    ) -> list[list[Hypothesis]]:
        with memory_by(self.mend[len(sentences) == 1]), torch.inference_mode(), laid_out():
            return self.begin(sentences, n_best=n_best, trees=trees).run(self.on_step)

    def begin(
        self, sentences: list[list[int]], *, n_best: int = 1, trees: Trees | None = None
    ) -> BeamSearch:
        """The search for these sentences before its first step."""
        device = self.device or best_device()
        if device.type == "cpu":
            keep_memory()
        model = self.model.to(device)
        if self.config.precision == "bf16" and next(model.parameters()).dtype != torch.bfloat16:
            if self._in_bf16 is None:
                self._in_bf16 = copy.deepcopy(model).to(torch.bfloat16)
            model = self._in_bf16
        return BeamSearch(
            model,
            _pad(sentences).to(device),
            beam=self.config.beam,
            alpha=self.config.alpha,
            penalty=self.config.length_penalty,
            max_extra_tokens=self.config.max_extra_tokens,
            n_best=n_best,
            stopping=self.config.stopping,
            trees=trees,
        )


def best_device() -> torch.device:
    """The first GPU, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def translate(
    model: Architecture,
    vocabulary: Vocabulary,
    lines: Sequence[str],
    config: EvaluateConfig,
    device: torch.device | None,
    on_done: Callable[[int], object] = lambda sentences: None,
    n_best: int = 1,
    engine: Engine | None = None,
    mapper: Mapper = serial,
    words: Sequence[int] | None = None,
    first: int = 1,
) -> list[list[Translation]]:
    """Translate lines: for each, in their order, up to `n_best` (at most the beam), best first.

    An empty line stays empty, with score 0. A line of more than `max_input_tokens` pieces, EOS
    included, is cut there, and a line on standard error says which (first: number of the first).
    Sentences of similar length are decoded together, each group by a call of `mapper`, which may
    share them out. `on_done` hears how many are done. device: None: the best of each machine.

    words: how many each line has, for outputs that are well-formed trees over them, by our own
    search. Raises ValueError when the vocabulary has no symbols of trees or `engine` is another.
    """
    ours = engine is None or isinstance(engine, OurSearch)
    if words is not None and (not ours or not vocabulary.symbols or len(words) != len(lines)):
        raise ValueError("words are for our search, a vocabulary of trees, and one of each line")
    results = [[Translation("", 0.0)] for _ in lines]
    encoded, groups = prepare(model, vocabulary, lines, config, first)
    on_done(len(lines) - len(encoded))
    find = functools.partial(_found, engine or OurSearch(model, config, device), n_best)

    def item(group: list[int]) -> Group:
        trees = None
        if words is not None and vocabulary.symbols:
            symbols, counts = vocabulary.symbols, [words[i] for i in group]
            known = [symbols.ids_of(lines[i].split(" ")) for i in group] if symbols.words else ()
            trees = Trees(counts, len(symbols.labels), len(symbols.tags), known, len(symbols))
        return [encoded[i] for i in group], trees

    with laid_out():
        found = mapper(find, map(item, groups))
        for group, hypotheses_of in zip(groups, found, strict=True):
            for i, hypotheses in zip(group, hypotheses_of, strict=True):
                texts = vocabulary.decode([hypothesis.pieces for hypothesis in hypotheses])
                both = zip(texts, hypotheses, strict=True)
                results[i] = [Translation(text, one.score, one.pieces) for text, one in both]
            on_done(len(group))
    return results


def _found(engine: Engine, n_best: int, group: Group) -> list[list[Hypothesis]]:
    sentences, trees = group
    if trees is None:
        return engine(sentences, n_best=n_best)
    assert isinstance(engine, OurSearch)
    return engine(sentences, n_best=n_best, trees=trees)


def _pad(sentences: Sequence[Sequence[int]]) -> Tensor:
    rows = [torch.tensor(sentence, dtype=torch.int64) for sentence in sentences]
    return pad_sequence(rows, batch_first=True, padding_value=PAD)


@dataclass
class Sentence:
    """One that is being decoded; or is done, and only waits for others to leave with."""

    index: int
    max_length: int
    finished: list[Hypothesis] = field(default_factory=list)
    done: bool = False

    def ranked(self) -> list[Hypothesis]:
        """Finished hypotheses, best first; of equals the one that finished first."""
        return sorted(self.finished, key=lambda hypothesis: -hypothesis.score)

    def advance(
        self,
        length: int,
        ends: Sequence[bool],
        scores: Sequence[float],
        going: Sequence[int],
        hypothesis: Callable[[int], Hypothesis],
        beam: int,
        n_best: int,
        divisor: float | None,
    ) -> bool:
        """Take in the continuations of a step, best first; whether the sentence is done.

        ends: whether each ends the sentence; scores: log-probabilities; going: ranks of those that
        survive; hypothesis: makes one of a rank. divisor: by it the log-probability of the best
        open one is divided, which must then beat the worst of `n_best` that are finished; None: not
        to stop early. UserError where nothing has a probability.
        """
        for rank in range(min(beam, len(ends))):
            if ends[rank] and scores[rank] > -np.inf:
                self.finished.append(hypothesis(rank))
        alive = [rank for rank in going if scores[rank] > -np.inf]
        self.done = (
            not alive
            or length >= self.max_length
            or (beam == 1 and bool(self.finished))
            or (
                divisor is not None
                and len(self.finished) >= n_best
                and self.ranked()[n_best - 1].score >= scores[alive[0]] / divisor
            )
        )
        if self.done and not self.finished:
            if not alive:
                raise UserError(NO_NUMBERS)
            self.finished += map(hypothesis, alive)
        return self.done


class BeamSearch:
    """The best hypotheses for each sentence of a source [B, n], best first, at most `n_best` each.

    At each step the K best continuations survive; one that ends the sentence becomes a finished
    hypothesis when it ranks among the first K. No output is longer than the input plus
    `max_extra_tokens`, EOS included; one cut there counts as it stands, only if none finished.
    Beam 1 follows one hypothesis: it ends with that.

    `stopping` says when a sentence is left, unless `early_stop` is off:

    exact: when no open hypothesis can come among its `n_best` finished ones any more. What it finds
    is what it would find without stopping: log-probabilities only fall, and the penalty only grows,
    so that what becomes of a hypothesis scores at most log P / lp(longest allowed).

    own_length: also when the best open hypothesis would not come among the `n_best` if it ended
    with the log P and the length that it has. A longer one that would have won is missed at times.

    `trees`: outputs are well-formed trees, see `decode.well_formed`. Other symbols are masked, and
    nothing is renormalised: a score stays the log-probability that the model gives, of a known word
    that it gives to words.

    Between steps: `sentences` that are not done, or wait for others to leave with, none at the end;
    of their open hypotheses, best first, `history` [B, K, 1 + pieces], BOS first, on the CPU, and
    `log_probabilities` [B, K]; `results` of each sentence, in the order of the source, once it is
    done. All of it in inference mode.
    """

    def __init__(
        self,
        model: Architecture,
        source: Tensor,
        *,
        beam: int,
        alpha: float,
        max_extra_tokens: int,
        penalty: Penalty = "paper",
        n_best: int = 1,
        early_stop: bool = True,
        stopping: Stopping = "exact",
        trees: Trees | None = None,
    ) -> None:
        """Encode the source. Raises ValueError when `n_best` is not from 1 to `beam`, or `trees` is
        not of B sentences."""
        if not 1 <= n_best <= beam:
            raise ValueError(f"n_best is {n_best}: it must be from 1 to the beam, {beam}")
        self._model, self._beam, self._n_best = model.eval(), beam, n_best
        self._early_stop, self._stopping = early_stop, stopping
        self._divisor_of = functools.partial(length_penalty, alpha=alpha, kind=penalty)
        self._cache = model.start(source)
        self.sentences = _sentences(source, max_extra_tokens, model.max_length)
        self.results: list[list[Hypothesis]] = [[] for _ in self.sentences]
        self.history = torch.full((len(self.sentences), 1, 1), BOS)
        self._newest = source.new_full((len(self.sentences), 1), BOS)
        self.log_probabilities = torch.zeros(len(self.sentences), 1, device=source.device)
        longest = [sentence.max_length for sentence in self.sentences]
        self._well_formed = WellFormed(trees, longest, source.device) if trees else None

    def run(self, on_step: Callable[[], object] | None = None) -> list[list[Hypothesis]]:
        """All steps that are left, `on_step` being called after each; the results."""
        while self.sentences:
            self.step()
            if on_step:
                on_step()
        return self.results

    def step(self) -> None:
        """One piece more of each hypothesis. A GPU is waited for once, and once more where
        the cache drops what none is made of."""
        sentences, of_each = self.sentences, self.history.size(1)
        # Of the best 2K continuations at most K end the sentence: one for each hypothesis.
        candidates, rows, pieces = continuations(
            self._model.step(self._newest, self._cache),
            self.log_probabilities,
            2 * self._beam,
            self._well_formed,
        )
        # As many for every sentence: K, or all there are while those are fewer.
        going = min(self._beam, pieces.size(1) - of_each)
        ranks = pieces.eq(EOS).to(torch.uint8).argsort(dim=1, stable=True)[:, :going]
        here = to_cpu(candidates, rows, pieces, ranks)
        self._advance(*here)
        stay = [b for b, sentence in enumerate(sentences) if not sentence.done]
        if not stay:
            self.sentences = []
            return
        rows, pieces = rows.gather(1, ranks), pieces.gather(1, ranks)
        self.log_probabilities = candidates.gather(1, ranks)
        self.history = extended(self.history, *here[1:])
        places = torch.arange(len(sentences), device=rows.device)
        if leave := len(stay) <= (1 - SHARE_TO_LEAVE) * len(sentences):
            places = torch.tensor(stay, device=rows.device)
            rows, pieces = rows[places], pieces[places]
            self.log_probabilities = self.log_probabilities[places]
            self.history = self.history[stay]
            self.sentences = [sentences[b] for b in stay]
        self._newest = pieces
        self._cache.select((places.unsqueeze(1) * of_each + rows).flatten())
        if self._well_formed:
            self._well_formed.select(places, rows, pieces)
        if leave:
            self._cache.keep(places)

    def _advance(self, candidates: Tensor, rows: Tensor, pieces: Tensor, ranks: Tensor) -> None:
        """Finish what ends, and sentences that are done."""
        length = self.history.size(2)
        is_end, score_list, going = pieces.eq(EOS).tolist(), candidates.tolist(), ranks.tolist()
        divisor = self._divisor_of(length)
        own_length = self._stopping == "own_length"
        for b, sentence in enumerate(self.sentences):
            if sentence.done:
                continue
            made = functools.partial(
                _hypothesis, self.history, rows, pieces, b, score_list[b], divisor
            )
            may = divisor if own_length else self._divisor_of(sentence.max_length)
            if sentence.advance(
                length, is_end[b], score_list[b], going[b], made, self._beam, self._n_best,
                may if self._early_stop else None,
            ):  # fmt: skip
                self.results[sentence.index] = sentence.ranked()[: self._n_best]


@torch.inference_mode()
@laid_out()
def search(model: Architecture, source: Tensor, **options: Any) -> list[list[Hypothesis]]:
    """The results of a `BeamSearch`, which has these options."""
    return BeamSearch(model, source, **options).run()


def longest_output(length: int, max_extra_tokens: int, max_length: int) -> int:
    """Tokens that an output may have, EOS included, for an input of `length`, EOS left out."""
    return min(max(length + max_extra_tokens, 1), max_length)


def _sentences(source: Tensor, max_extra_tokens: int, max_length: int) -> list[Sentence]:
    """Those of source [B, n], with the longest output that each may have."""
    lengths = (source.ne(PAD).sum(dim=1) - 1).tolist()
    return [
        Sentence(i, longest_output(length, max_extra_tokens, max_length))
        for i, length in enumerate(lengths)
    ]


def _hypothesis(
    history: Tensor,
    rows: Tensor,
    pieces: Tensor,
    sentence: int,
    scores: Sequence[float],
    divisor: float,
    rank: int,
) -> Hypothesis:
    """Of a sentence's continuation of a rank; divisor: of its log-probability."""
    prefix = history[sentence, int(rows[sentence, rank]), 1:].tolist()
    return Hypothesis([*prefix, int(pieces[sentence, rank])], scores[rank] / divisor)
