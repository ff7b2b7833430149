"""Search for well-formed trees: against a slow mask, beam search as defined, and all trees.

The model is a table: what it says next is a function of the sentence and of all that was written.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from seq2sweep.data.treebank.linearisation import linearise, rebuild
from seq2sweep.data.treebank.symbols import EOS, FIRST_OPENING, UNKNOWN, WORD, Symbols
from seq2sweep.data.vocabulary import BOS, PAD
from seq2sweep.decode.beam import Hypothesis, length_penalty, search
from seq2sweep.decode.well_formed import Trees, WellFormed
from seq2sweep.model.architecture import Architecture

CPU = torch.device("cpu")
ROWS, PRIME = 4999, 1_000_003


class States:
    """A hash of all that was written, of each hypothesis."""

    def __init__(self, hashes: Tensor) -> None:
        self.hashes = hashes

    def select(self, hypotheses: Tensor) -> None:
        self.hashes = self.hashes[hypotheses]

    def keep(self, sentences: Tensor) -> None:
        pass


class Table(Architecture):
    """Logits that are a row of a random table: which, a hash of source and prefix says."""

    def __init__(
        self,
        seed: int,
        columns: int,
        leanings: dict[int, float] | None = None,
        sharpness: float = 1.0,
        max_length: int = 10_000,
    ) -> None:
        super().__init__(None, columns)
        torch.manual_seed(seed)
        self.logits = torch.randn(ROWS, columns, dtype=torch.float64) * sharpness
        for column, number in (leanings or {}).items():
            self.logits[:, column] += number
        self.longest = max_length
        self.asked: list[int] = []

    @property
    def max_length(self) -> int:
        return self.longest

    def start(self, source: Tensor) -> States:
        return States(source.sum(dim=1))

    def step(self, pieces: Tensor, cache: States) -> Tensor:
        self.asked.append(len(pieces))
        cache.hashes = (cache.hashes * 31 + pieces.flatten() * 7 + 1) % PRIME
        return self.logits[cache.hashes.view(pieces.shape) % ROWS]

    def following(self, row: Sequence[int], said: Sequence[int]) -> list[float]:
        """log P of each column after these symbols."""
        state = sum(row)
        for symbol in (BOS, *said):
            state = (state * 31 + symbol * 7 + 1) % PRIME
        found: list[float] = torch.log_softmax(self.logits[state % ROWS], dim=-1).tolist()
        return found

    def log_probability(self, row: Sequence[int], said: Sequence[int]) -> float:
        return sum(self.following(row, said[:i])[symbol] for i, symbol in enumerate(said))


# --- references -----------------------------------------------------------------------------------


def still_to_come(prefix: Sequence[int], words: int, labels: int) -> int | None:
    """The fewest symbols that make a whole of it, EOS included; None: nothing does."""
    left = words
    open_: list[tuple[int, int]] = []  # which symbol closes it, words left when it was opened
    for symbol in prefix:
        if symbol == WORD and left:
            left -= 1
        elif FIRST_OPENING <= symbol < FIRST_OPENING + labels:
            open_.append((symbol + labels, left))
        elif not (open_ and open_[-1][0] == symbol and open_.pop()[1] > left):
            return None
    return None if left == 0 and any(at == 0 for _, at in open_) else len(open_) + left + 1


def allowed(
    prefix: Sequence[int], words: int, labels: int, longest: int, columns: int
) -> set[int] | None:
    """What may follow; None if the prefix is none of a tree's that fits, or is whole."""
    first = still_to_come(prefix, words, labels)
    if longest <= words:
        return {WORD} if set(prefix) <= {WORD} and len(prefix) < longest else None
    if first is None or len(prefix) + first > longest:
        return None
    found = {EOS} if first == 1 else set()
    for symbol in range(columns):
        needed = still_to_come([*prefix, symbol], words, labels)
        if needed is not None and len(prefix) + 1 + needed <= longest:
            found.add(symbol)
    return found


@functools.cache
def all_trees(words: int, labels: int, longest: int) -> list[list[int]]:
    """Of all symbols in a row those that are a tree, by what repairs them; EOS last."""
    symbols = Symbols([f"L{i}" for i in range(labels)])
    alphabet = range(FIRST_OPENING, len(symbols))
    found = []
    for brackets in range((longest - words - 1) // 2 + 1):
        length = words + 2 * brackets
        for places in itertools.combinations(range(length), words):
            for ids in itertools.product(alphabet, repeat=2 * brackets):
                rest = iter(ids)
                said = [WORD if i in places else next(rest) for i in range(length)]
                if well_formed(symbols, said, words):
                    found.append([*said, EOS])
    return found


def well_formed(symbols: Symbols, said: Sequence[int], words: int) -> bool:
    texts = symbols.decode([said])[0].split()
    tree, repairs = rebuild(texts, ["w"] * words)
    return not repairs and linearise(tree) == texts


def search_as_defined(
    model: Table, row: Sequence[int], trees: tuple[int, int], longest: int, beam: int, alpha: float
) -> list[Hypothesis]:
    """Beam search for one sentence, best first, with the slow mask. trees: words and labels."""
    opened: list[tuple[float, list[int]]] = [(0.0, [])]
    finished: list[tuple[float, list[int]]] = []
    for _ in range(longest):
        continued = []
        for so_far, said in opened:
            following = model.following(row, said)
            for symbol in allowed(said, *trees, longest, model.vocabulary_size) or ():
                continued.append((so_far + following[symbol], [*said, symbol]))
        continued.sort(key=lambda candidate: -candidate[0])
        finished += [candidate for candidate in continued[:beam] if candidate[1][-1] == EOS]
        opened = [candidate for candidate in continued if candidate[1][-1] != EOS][:beam]
        if not opened or (beam == 1 and finished):
            break
    scored = [
        Hypothesis(said, score / length_penalty(len(said), alpha))
        for score, said in finished or opened
    ]
    return sorted(scored, key=lambda hypothesis: -hypothesis.score)


def padded(rows: Sequence[Sequence[int]]) -> Tensor:
    width = max(map(len, rows))
    return torch.tensor([[*row, *[PAD] * (width - len(row))] for row in rows])


def random_rows(chance: random.Random, lengths: Sequence[int]) -> list[list[int]]:
    return [[*(chance.randrange(3, 900) for _ in range(n)), EOS] for n in lengths]


def assert_same(found: list[Hypothesis], expected: list[Hypothesis], within: float = 1e-9) -> None:
    assert [h.pieces for h in found] == [h.pieces for h in expected]
    assert [h.score for h in found] == pytest.approx([h.score for h in expected], abs=within)


# --- the mask -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_the_mask_is_the_slow_one_at_every_step(seed: int) -> None:
    """Through hypotheses and sentences chosen at random, some of which write what they may not."""
    chance = random.Random(seed)
    labels = chance.randint(1, 4)
    columns = FIRST_OPENING + 2 * labels + chance.choice([0, 3])
    words = [chance.randint(0, 5) for _ in range(4)]
    longest = [max(1, w + chance.choice([-1, 1, 2, 3, 6, 9])) for w in words]
    state = WellFormed(Trees(words, labels), longest, CPU)
    prefixes: list[list[list[int]]] = [[[]] for _ in words]
    for _ in range(max(longest)):
        logits = torch.randn(len(words), len(prefixes[0]), columns, dtype=torch.float64)
        masked = logits.clone()
        state.mask(masked)
        may: dict[tuple[int, int], set[int] | None] = {}
        for b, k in itertools.product(range(len(words)), range(len(prefixes[0]))):
            may[b, k] = allowed(prefixes[b][k], words[b], labels, longest[b], columns)
            if may[b, k] is not None:
                found = {i for i, logit in enumerate(masked[b, k].tolist()) if logit > -torch.inf}
                assert found == may[b, k], prefixes[b][k]
        assert torch.equal(masked[masked.isfinite()], logits[masked.isfinite()])
        stay = [b for b in range(len(words)) if chance.random() < 0.97] or [0]
        rows, symbols = [], []
        count = chance.randint(3, 6)
        for b in stay:
            rows.append([chance.randrange(len(prefixes[0])) for _ in range(count)])
            right = [sorted(may[b, k] or ()) for k in rows[-1]]
            symbols.append(
                [
                    chance.choice(some)
                    if some and chance.random() < 0.95
                    else chance.randrange(columns)
                    for some in right
                ]
            )
        state.select(torch.tensor(stay), torch.tensor(rows), torch.tensor(symbols))
        prefixes = [
            [[*prefixes[b][k], symbol] for k, symbol in zip(rows[i], symbols[i], strict=True)]
            for i, b in enumerate(stay)
        ]
        words, longest = [words[b] for b in stay], [longest[b] for b in stay]


def test_other_numbers_of_sentences_are_refused() -> None:
    with pytest.raises(ValueError, match="words of 2 sentences, but 1 sentences"):
        search(
            Table(0, 7), torch.tensor([[3, EOS]]), beam=2, alpha=0.0, max_extra_tokens=4,
            trees=Trees([1, 1], 1),
        )  # fmt: skip


# --- the search -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_it_is_beam_search_as_defined_with_the_slow_mask(seed: int) -> None:
    """Several sentences in a batch, in float64; some of which have no room for a tree."""
    chance = random.Random(seed)
    labels = chance.randint(1, 3)
    model = Table(
        seed,
        FIRST_OPENING + 2 * labels + chance.choice([0, 2]),
        chance.choice([{}, {EOS: 6.0}, {UNKNOWN: 8.0, PAD: 4.0}, {FIRST_OPENING: 3.0}]),
        chance.choice([0.5, 2.0]),
        chance.choice([10_000, 5]),
    )
    words = [chance.randint(0, 5) for _ in range(chance.randint(1, 4))]
    rows = random_rows(chance, [max(0, w + chance.randint(-1, 2)) for w in words])
    beam, alpha, extra = chance.randint(1, 5), chance.choice([0.0, 0.3, 2.0]), chance.randint(0, 8)
    found = search(
        model, padded(rows), beam=beam, alpha=alpha, max_extra_tokens=extra, n_best=beam,
        trees=Trees(words, labels),
    )  # fmt: skip
    for row, w, hypotheses in zip(rows, words, found, strict=True):
        longest = min(max(1, len(row) - 1 + extra), model.max_length)
        expected = search_as_defined(model, row, (w, labels), longest, beam, alpha)
        assert_same(hypotheses, expected[:beam])
        for hypothesis in hypotheses:
            logs = model.log_probability(row, hypothesis.pieces)
            divisor = length_penalty(len(hypothesis.pieces), alpha)
            assert hypothesis.score == pytest.approx(logs / divisor, abs=1e-9)


@pytest.mark.parametrize("seed", range(30))
def test_words_may_be_written_as_tags(seed: int) -> None:
    """Each word is one of the tags then, never XX, and all else is as before."""
    chance = random.Random(seed)
    labels, tags = chance.randint(1, 3), chance.randint(1, 3)
    first = FIRST_OPENING + 2 * labels
    model = Table(seed, first + tags + 2, {WORD: 3.0, first + tags: 3.0})
    words = [chance.randint(1, 5) for _ in range(3)]
    rows = random_rows(chance, words)
    found = search(
        model, padded(rows), beam=3, alpha=0.3, max_extra_tokens=9, n_best=3,
        trees=Trees(words, labels, tags),
    )  # fmt: skip
    used = set()
    for row, w, hypotheses in zip(rows, words, found, strict=True):
        for hypothesis in hypotheses:
            *said, end = hypothesis.pieces
            used.update(said)
            assert WORD not in said
            as_words = [WORD if first <= symbol < first + tags else symbol for symbol in said]
            assert end == EOS
            assert still_to_come(as_words, w, labels) == 1
            logs = model.log_probability(row, hypothesis.pieces)
            assert hypothesis.score == pytest.approx(
                logs / length_penalty(len(hypothesis.pieces), 0.3), abs=1e-9
            )
    assert used & {*range(first, first + tags)}


LEANINGS: list[dict[str, float]] = [
    {},
    {"opening": 4.0},
    {"closing": 4.0},
    {"end": 6.0},
    {"word": 4.0},
    {"other": 12.0},
    {"opening": 30.0, "closing": -30.0},
]


@pytest.mark.parametrize("seed", range(150))
def test_every_output_is_well_formed(seed: int) -> None:
    """In float32, as models are; twenty sentences each time, and all hypotheses of their beams."""
    chance = random.Random(seed)
    labels = chance.choice([1, 2, 5, 28])
    columns = FIRST_OPENING + 2 * labels + chance.choice([0, 4])
    symbols = Symbols([f"L{i}" for i in range(labels)])
    lean = chance.choice(LEANINGS)
    kinds = {
        "end": [EOS],
        "word": [WORD],
        "opening": range(FIRST_OPENING, FIRST_OPENING + labels),
        "closing": range(FIRST_OPENING + labels, len(symbols)),
        "other": [PAD, BOS, UNKNOWN, *range(len(symbols), columns)],
    }
    leanings = {i: number for kind, number in lean.items() for i in kinds[kind]}
    model = Table(seed, columns, leanings, chance.choice([0.3, 1.0, 5.0]))
    model.logits = model.logits.float()
    words = [chance.randint(1, 12) for _ in range(20)]
    rows = random_rows(chance, [w + chance.randint(0, 3) for w in words])
    extra, beam = chance.choice([1, 2, 3, 7, 30]), chance.choice([1, 2, 4, 7])
    found = search(
        model, padded(rows), beam=beam, alpha=0.3, max_extra_tokens=extra, n_best=beam,
        trees=Trees(words, labels),
    )  # fmt: skip
    for row, w, hypotheses in zip(rows, words, found, strict=True):
        assert 1 <= len(hypotheses) <= beam
        for *said, last in (hypothesis.pieces for hypothesis in hypotheses):
            assert last == EOS
            assert len(said) + 1 <= len(row) - 1 + extra
            assert set(said) <= {WORD, *kinds["opening"], *kinds["closing"]}
            assert well_formed(symbols, said, w), said


@pytest.mark.parametrize("alpha", [0.0, 0.3, 2.0])
@pytest.mark.parametrize(
    ("words", "labels", "longest"),
    [(1, 1, 8), (1, 2, 7), (2, 1, 7), (2, 2, 7), (3, 1, 8), (3, 2, 8)],
)
def test_a_beam_of_all_finds_all_trees(words: int, labels: int, longest: int, alpha: float) -> None:
    row = [*[9] * words, EOS]
    every = all_trees(words, labels, longest)
    assert len(every) >= 4
    for seed in range(3):
        model = Table(seed, FIRST_OPENING + 2 * labels + 1, {UNKNOWN: 2.0})
        expected = [
            Hypothesis(said, model.log_probability(row, said) / length_penalty(len(said), alpha))
            for said in every
        ]
        expected.sort(key=lambda hypothesis: -hypothesis.score)
        for n_best in (1, len(every)):
            found = search(
                model, torch.tensor([row]), beam=len(every), alpha=alpha,
                max_extra_tokens=longest - words, n_best=n_best, trees=Trees([words], labels),
            )  # fmt: skip
            assert_same(found[0], expected[:n_best])


def log_probability_of_known(
    model: Table, row: Sequence[int], said: Sequence[int], first: int, tags: int, last: int
) -> float:
    """That a word comes next is the sum over all symbols of words, up to `last`; a tag has its
    share of it."""
    found = 0.0
    for i, symbol in enumerate(said):
        following = [math.exp(logs) for logs in model.following(row, said[:i])]
        tagged = following[first : first + tags] or [following[WORD]]
        words = following[WORD] + sum(following[first : last + 1])
        if symbol == WORD or first <= symbol < first + tags:
            found += math.log(words * following[symbol] / sum(tagged))
        else:
            found += math.log(words if symbol >= first else following[symbol])
    return found


@pytest.mark.parametrize("spare", [0, 4])
@pytest.mark.parametrize("tags", [0, 2])
def test_known_words_are_written_as_themselves_and_nothing_else(tags: int, spare: int) -> None:
    """A beam of all finds each tree as often as the words that are not known may be written. What
    a model's columns to spare have is not what words have."""
    labels, longest = 2, 8
    first = FIRST_OPENING + 2 * labels
    known = [first + tags + 1, 0, first + tags]
    ways = [[known[0]], [*range(first, first + tags)] or [WORD], [known[2]]]
    row = [9, 9, 9, EOS]
    for seed in range(3):
        likely = {first + tags + 2: 3.0, UNKNOWN: 2.0, first + tags + 2 + spare: 3.0}
        model = Table(seed, first + tags + 3 + spare, likely)
        expected = []
        for said in all_trees(3, labels, longest):
            for words in itertools.product(*ways):
                rest = iter(words)
                whole = [next(rest) if symbol == WORD else symbol for symbol in said]
                logs = log_probability_of_known(model, row, whole, first, tags, first + tags + 2)
                expected.append(Hypothesis(whole, logs / length_penalty(len(whole), 0.3)))
        expected.sort(key=lambda hypothesis: -hypothesis.score)
        found = search(
            model, torch.tensor([row]), beam=len(expected), alpha=0.3,
            max_extra_tokens=longest - 3, n_best=len(expected),
            trees=Trees([3], labels, tags, [known], first + tags + 3),
        )  # fmt: skip
        assert_same(found[0], expected)


@pytest.mark.parametrize("seed", range(10))
def test_known_words_stay_with_their_sentences_as_others_end(seed: int) -> None:
    chance = random.Random(seed)
    words, labels = [chance.randint(1, 6) for _ in range(6)], 2
    first = FIRST_OPENING + 2 * labels
    known = [[chance.choice([0, *range(first, first + 4)]) for _ in range(w)] for w in words]
    rows = random_rows(chance, words)
    model = Table(seed, first + 4, {EOS: 3.0}, 2.0)
    options: dict[str, Any] = {"beam": 3, "alpha": 0.3, "max_extra_tokens": 12, "n_best": 3}
    found = search(model, padded(rows), trees=Trees(words, labels, 0, known), **options)
    for row, w, ids, hypotheses in zip(rows, words, known, found, strict=True):
        (alone,) = search(model, torch.tensor([row]), trees=Trees([w], labels, 0, [ids]), **options)
        assert_same(hypotheses, alone)
        for hypothesis in hypotheses:
            written = [s for s in hypothesis.pieces if s == WORD or s >= first]
            assert written == [one or WORD for one in ids]


def test_a_known_word_is_no_more_probable_than_what_it_continues() -> None:
    """Where a model is sure of a word, rounding of float32 would make the sum more than 1."""
    torch.manual_seed(0)
    columns, above = 40, 0
    first = FIRST_OPENING + 2
    for _ in range(200):
        logits = torch.randn(1, 1, columns) * 8
        logits[..., first:] += 30.0
        logs = torch.log_softmax(logits, dim=-1)
        above += bool(logs[..., first:].logsumexp(-1) > 0)
        WellFormed(Trees([1], 1, 0, [[first + 1]]), [9], CPU).mask(logs)
        assert logs[0, 0, first + 1] <= 0
    assert above > 10


def test_known_words_must_be_as_many_as_words() -> None:
    with pytest.raises(ValueError, match=r"\[2\] words are known, of \[3\]"):
        WellFormed(Trees([3], 1, 0, [[9, 9]]), [9], CPU)


@pytest.mark.parametrize("seed", range(5))
def test_a_batch_gives_what_each_sentence_gives_alone(seed: int) -> None:
    chance = random.Random(seed)
    words = [1, 9, 2, 6, 3, 12, 1, 5]
    rows = random_rows(chance, words)
    model = Table(seed, FIRST_OPENING + 2 * 3, {EOS: 3.0, WORD: 1.0}, 2.0)
    options: dict[str, Any] = {"beam": 4, "alpha": 0.3, "max_extra_tokens": 20, "n_best": 4}
    steps, alone = [], []
    for row, w in zip(rows, words, strict=True):
        model.asked.clear()
        alone += search(model, torch.tensor([row]), trees=Trees([w], 3), **options)
        steps.append(len(model.asked))
    model.asked.clear()
    together = search(model, padded(rows), trees=Trees(words, 3), **options)
    for found, expected in zip(together, alone, strict=True):
        assert_same(found, expected)
    # They leave the batch at different steps.
    assert model.asked == [sum(n > step for n in steps) for step in range(max(steps))]
    assert len(set(steps)) > 3


def test_what_is_masked_keeps_its_probability() -> None:
    """One word and no room for brackets: XX and the end, by the probabilities of the model."""
    model = Table(0, 7, {UNKNOWN: 5.0})
    row = [8, EOS]
    found = search(
        model, torch.tensor([row]), beam=3, alpha=0.0, max_extra_tokens=1, trees=Trees([1], 1)
    )
    logs = model.following(row, [])[WORD] + model.following(row, [WORD])[EOS]
    assert_same(found[0], [Hypothesis([WORD, EOS], logs)])
    assert logs < -6.0


@pytest.mark.parametrize("beam", [1, 4])
def test_no_room_for_a_tree_leaves_words_only(beam: int) -> None:
    model = Table(1, 9, {FIRST_OPENING: 9.0, EOS: 9.0}, max_length=5)
    row = [*[8] * 6, EOS]
    for words, said in ((6, [WORD] * 5), (5, [WORD] * 5), (4, [WORD] * 4 + [EOS])):
        found = search(
            model, torch.tensor([row]), beam=beam, alpha=0.3, max_extra_tokens=9, n_best=beam,
            trees=Trees([words], 2),
        )  # fmt: skip
        score = model.log_probability(row, said) / length_penalty(5, 0.3)
        assert_same(found[0], [Hypothesis(said, score)])
