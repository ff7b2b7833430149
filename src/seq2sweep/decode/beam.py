"""Beam search with the paper's length penalty (section 6.1).

A hypothesis Y scores log P(Y | X) / lp(Y) with lp(Y) = ((5 + |Y|) / 6) ** alpha (Wu et al. 2016,
equation 14), |Y| counting the end-of-sentence piece. Beam 1 is greedy search.

Shapes: B sentences still open, K hypotheses each, V pieces in the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from seq2sweep.config import EvaluateConfig
from seq2sweep.data.vocabulary import BOS, EOS, PAD, Vocabulary
from seq2sweep.model.transformer import Transformer


@dataclass(frozen=True)
class Hypothesis:
    """A translation as piece ids, EOS included, and its length-normalised log-probability."""

    pieces: list[int]
    score: float


def length_penalty(length: int, alpha: float) -> float:
    """((5 + length) / 6) ** alpha."""
    return float(((5 + length) / 6) ** alpha)


def translate(
    model: Transformer,
    vocabulary: Vocabulary,
    lines: Sequence[str],
    config: EvaluateConfig,
    device: torch.device,
    on_done: Callable[[int], object] = lambda sentences: None,
) -> list[str]:
    """Translate lines; the output has the order of the input. An empty line stays empty.

    Sentences of similar length are decoded together. `on_done` hears how many are done.
    """
    encoded = vocabulary.encode(lines)
    results = [""] * len(lines)
    for group in _groups([len(pieces) for pieces in encoded], config):
        source = _pad([encoded[i] for i in group]).to(device)
        found = search(
            model,
            source,
            beam=config.beam,
            alpha=config.alpha,
            max_extra_tokens=config.max_extra_tokens,
        )
        texts = vocabulary.decode([hypotheses[0].pieces for hypotheses in found])
        for i, text in zip(group, texts, strict=True):
            results[i] = text if lines[i].strip() else ""
        on_done(len(group))
    return results


def _groups(lengths: Sequence[int], config: EvaluateConfig) -> Iterator[list[int]]:
    """Indices in groups of similar length, longest first, each within the token budget."""
    order = np.argsort(-np.asarray(lengths), kind="stable")
    group: list[int] = []
    for i in order.tolist():
        longest = lengths[group[0]] if group else lengths[i]
        if group and (len(group) + 1) * longest * config.beam > config.tokens_per_batch:
            yield group
            group = []
        group.append(i)
    if group:
        yield group


def _pad(sentences: Sequence[Sequence[int]]) -> Tensor:
    width = max(len(sentence) for sentence in sentences)
    padded = torch.full((len(sentences), width), PAD, dtype=torch.int64)
    for row, sentence in enumerate(sentences):
        padded[row, : len(sentence)] = torch.tensor(sentence)
    return padded


@dataclass
class _Open:
    """A sentence that is still being decoded."""

    index: int
    max_length: int
    finished: list[Hypothesis] = field(default_factory=list)


@torch.inference_mode()
def search(
    model: Transformer,
    source: Tensor,
    *,
    beam: int,
    alpha: float,
    max_extra_tokens: int,
    early_stop: bool = True,
) -> list[list[Hypothesis]]:
    """The best hypotheses for each sentence of source [B, n], best first, at most `beam` each.

    At each step the K best continuations survive; one that ends the sentence becomes a finished
    hypothesis when it ranks among the first K. No output is longer than the input plus
    `max_extra_tokens`, EOS included; one cut there counts as it stands, only if none finished.
    `early_stop` leaves a sentence when no open hypothesis can beat the best finished one any
    more: log-probabilities only fall, so its score is at most log P / lp(longest allowed).
    """
    model.eval()
    device = source.device
    sizes = source.ne(PAD).sum(dim=1).tolist()
    results: list[list[Hypothesis]] = [[] for _ in sizes]
    # The source's own EOS is no word of the input.
    longest = model.longest_target
    opened = [
        _Open(i, min(max(size - 1 + max_extra_tokens, 1), longest)) for i, size in enumerate(sizes)
    ]
    cache = model.start(source)
    history = torch.full((len(opened), 1, 1), BOS, dtype=torch.int64, device=device)
    log_probabilities = torch.zeros(len(opened), 1, device=device)
    length = 0
    while opened:
        length += 1
        logits = model.step(history[:, :, -1], cache)
        logits[:, :, [PAD, BOS]] = -torch.inf
        scores = log_probabilities.unsqueeze(-1) + torch.log_softmax(logits.float(), dim=-1)
        # Of the best 2K continuations at most K end the sentence: one for each hypothesis.
        candidates, places = _top(scores, 2 * beam)
        rows, pieces = places // scores.size(2), places % scores.size(2)
        chosen, stay, open_next = [], [], []
        ends = pieces.eq(EOS)
        is_end, score_list = ends.tolist(), candidates.tolist()
        penalty = length_penalty(length, alpha)
        for b, sentence in enumerate(opened):
            for rank in range(min(beam, len(is_end[b]))):
                if is_end[b][rank] and score_list[b][rank] > -np.inf:
                    prefix = history[b, int(rows[b, rank]), 1:].tolist()
                    sentence.finished.append(
                        Hypothesis([*prefix, EOS], score_list[b][rank] / penalty)
                    )
            going = [
                rank
                for rank, end in enumerate(is_end[b])
                if not end and score_list[b][rank] > -np.inf
            ][:beam]
            if _done(sentence, going, score_list[b], length, beam, alpha, early_stop):
                if not sentence.finished:
                    for rank in going:
                        prefix = history[b, int(rows[b, rank]), 1:].tolist()
                        sentence.finished.append(
                            Hypothesis(
                                [*prefix, int(pieces[b, rank])], score_list[b][rank] / penalty
                            )
                        )
                ranked = sorted(sentence.finished, key=lambda h: -h.score)
                results[sentence.index] = ranked[:beam]
            else:
                open_next.append(sentence)
                stay.append(b)
                chosen.append(going)
        if not stay:
            break
        opened = open_next
        width = max(len(going) for going in chosen)
        # A hypothesis that fills a place left empty can never win: its score is -inf.
        filler = [going + [going[0]] * (width - len(going)) for going in chosen]
        missing = torch.tensor([[k >= len(g) for k in range(width)] for g in chosen])
        keep = torch.tensor(stay, device=device)
        ranks = torch.tensor(filler, device=device)
        rows = rows[keep].gather(1, ranks)
        next_pieces = pieces[keep].gather(1, ranks)
        log_probabilities = candidates[keep].gather(1, ranks)
        log_probabilities[missing.to(device)] = -torch.inf
        old_width = history.size(1)
        history = history[keep.unsqueeze(1), rows]
        history = torch.cat((history, next_pieces.unsqueeze(-1)), dim=2)
        cache.select((keep.unsqueeze(1) * old_width + rows).flatten())
        if len(stay) < cache.source_mask.size(0):
            cache.keep(keep)
    return results


def _top(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The best `count` of scores [B, K, V] for each sentence, and their places in K * V.

    First the best of each hypothesis, then the best of those: no sort over K * V.
    """
    per_row = min(count, scores.size(2))
    best, pieces = scores.topk(per_row, dim=2)
    offsets = torch.arange(scores.size(1), device=scores.device).view(1, -1, 1) * scores.size(2)
    values, order = best.flatten(1).topk(min(count, best.size(1) * per_row), dim=1)
    return values, (pieces + offsets).flatten(1).gather(1, order)


def _done(
    sentence: _Open,
    going: list[int],
    scores: list[float],
    length: int,
    beam: int,
    alpha: float,
    early_stop: bool,
) -> bool:
    if not going or length >= sentence.max_length:
        return True
    if not sentence.finished:
        return False
    if beam == 1:
        return True
    if not early_stop:
        return False
    reachable = scores[going[0]] / length_penalty(sentence.max_length, alpha)
    return max(h.score for h in sentence.finished) >= reachable
