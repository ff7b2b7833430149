"""What is held out of training: no sentence on two sides, whatever repeats, in any order."""

from __future__ import annotations

import random
import unicodedata
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2sweep.config import DataConfig, PhrasebookConfig
from seq2sweep.config.datasets import FilesConfig
from seq2sweep.data.own import hold_out, own_files
from seq2sweep.data.own.hold_out import Sentences, held_out, sentences
from seq2sweep.errors import UserError
from seq2sweep.parallel import Processes

Pairs = list[tuple[str, str]]


def words(number: int, side: str) -> str:
    """A sentence of its own."""
    letters = "".join(chr(ord("a") + int(digit)) for digit in str(number))
    return f"{side} {letters} and more."


def corpus(count: int, seed: int = 1, *, of: int | None = None) -> Pairs:
    """Pairs of sentences, some of which repeat: of so many different ones a side."""
    chance, of = random.Random(seed), of or count
    return [
        (words(chance.randrange(of), "Src"), words(chance.randrange(of), "Tgt"))
        for _ in range(count)
    ]


def same(text: str) -> str:
    """An independent idea of when two sentences are the same."""
    return " ".join(unicodedata.normalize("NFC", text).lower().split())


def split(pairs: Pairs, valid: int, test: int, taken: Iterable[Pairs] = ()) -> dict[str, Pairs]:
    """All three splits, train as `prepare` leaves it: without what is in the others as it is."""
    read = sentences(pairs, "en", "de")
    places = held_out(read, valid, test, [sentences(other, "en", "de") for other in taken])
    found = {name: [pairs[place] for place in positions] for name, positions in places.items()}
    out = [*found["valid"], *found["test"]]
    squeezed = [{" ".join(pair[side].split()) for pair in out} for side in (0, 1)]
    found["train"] = [
        pair
        for pair in pairs
        if not any(" ".join(pair[side].split()) in squeezed[side] for side in (0, 1))
    ]
    return found


def assert_no_leak(splits: dict[str, Pairs]) -> None:
    for side in (0, 1):
        texts = {name: {same(pair[side]) for pair in pairs} for name, pairs in splits.items()}
        for one in texts:
            for other in texts.keys() - {one}:
                assert not texts[one] & texts[other], (one, other)
        for name in ("valid", "test"):
            assert len(texts.get(name, ())) == len(splits.get(name, ()))


@pytest.mark.parametrize("different", [400, 900, 3000])
def test_no_sentence_is_on_two_sides(different: int) -> None:
    pairs = corpus(2000, of=different)
    pairs += pairs[:200] + [(source.upper() + "  ", target) for source, target in pairs[200:260]]
    pairs += [(pairs[n][0], pairs[n + 1][1]) for n in range(300, 400)]
    random.Random(2).shuffle(pairs)
    splits = split(pairs, 20, 30)
    assert (len(splits["valid"]), len(splits["test"])) == (20, 30)
    assert len(splits["train"]) > len(pairs) / 2
    assert_no_leak(splits)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=60),
    st.integers(0, 4),
    st.integers(0, 4),
)
def test_any_corpus_is_split_without_a_leak_or_refused(
    numbers: list[tuple[int, int]], valid: int, test: int
) -> None:
    pairs = [(words(a, "Src"), words(b, "Tgt")) for a, b in numbers]
    try:
        splits = split(pairs, valid, test)
    except UserError:
        return
    assert (len(splits["valid"]), len(splits["test"])) == (valid, test)
    assert_no_leak(splits)


def test_neither_order_nor_the_size_of_the_other_split_matters() -> None:
    pairs = list(dict.fromkeys(corpus(3000)))
    first = split(pairs, 40, 50)
    shuffled = random.Random(4).sample(pairs, len(pairs))
    again = split(shuffled, 40, 50)
    for name in ("valid", "test"):
        assert sorted(first[name]) == sorted(again[name])
    assert split(pairs, 3, 50)["test"] == first["test"]
    # A corpus that grows keeps most of its held-out pairs.
    grown = split(pairs + [(f"New {s}", f"Neu {t}") for s, t in corpus(300, 9)], 40, 50)
    assert len({*grown["test"]} & {*first["test"]}) > 35


def test_which_pairs_they_are_is_fixed() -> None:
    """Another choice would be another test set: scores before and after could not be compared."""
    pairs = [(words(n, "Src"), words(n, "Tgt")) for n in range(100)]
    places = held_out(sentences(pairs, "en", "de"), 3, 3)
    assert {name: found.tolist() for name, found in places.items()} == {
        "test": [25, 28, 76],
        "valid": [38, 39, 75],
    }


def test_what_the_given_splits_have_is_not_held_out() -> None:
    pairs = corpus(500)
    alone = split(pairs, 20, 0)["valid"]
    given_test = [(alone[0][0].lower(), "anders"), ("other", alone[1][1])]
    valid = split(pairs, 20, 0, [given_test])["valid"]
    assert len(valid) == 20
    assert not {*valid} & {*alone[:2]}
    assert len({*valid} & {*alone}) >= 15
    assert_no_leak({"valid": valid, "test": given_test})


def test_what_is_no_clean_pair_is_not_held_out() -> None:
    odd = [("", "leer"), ("leer", " "), ("word " * 300, "Wort " * 300), ("x " * 11, "y " * 60)]
    odd += [(same, same) for same in ("this is copied as it is here",)] + [("привет", "Hallo")]
    pairs = odd + [(words(n, "Src"), words(n, "Tgt")) for n in range(20)]
    read = sentences(pairs, "en", "de")
    assert (read.pairs, len(read), read.positions.tolist()) == (26, 20, [*range(6, 26)])
    assert min(held_out(read, 5, 5)["test"]) >= 6
    with pytest.raises(UserError, match=r"test_pairs is 21, but only 20 of 26 training pairs can"):
        held_out(read, 0, 21)


def test_what_a_given_split_has_in_a_pair_that_is_not_clean_is_not_held_out(tmp_path: Path) -> None:
    """Such a pair stays in the test set, whatever training drops."""
    pairs = [(words(n, "Src"), words(n, "Tgt")) for n in range(200)]
    held = pairs[hold_out.held_out(sentences(pairs, "en", "de"), 1, 0)["valid"][0]][0]
    for odd in (held, "lang " * 300, ""):  # copied, too long, empty
        test = [(held, odd), ("anything", "irgendetwas")]
        for name, lines in (("a", pairs), ("t", test)):
            for side, language in enumerate(("en", "de")):
                text = "".join(f"{pair[side]}\n" for pair in lines)
                (tmp_path / f"{name}.{language}").write_text(text, encoding="utf-8")
        files = FilesConfig(("a.en", "a.de"), (), ("t.en", "t.de"), valid_pairs=1)
        data = DataConfig("files", "en", "de", str(tmp_path), PhrasebookConfig(1, 1, 1, 1), files)
        ((source, _),) = hold_out.of_files(data, own_files.named(data))["valid"]
        assert source != held


def test_a_sentence_of_many_partners_stays_in_training() -> None:
    many = [("Yes.", words(n, "Tgt")) for n in range(hold_out.MOST_PARTNERS + 2)]
    few = [("No.", words(n + 500, "Tgt")) for n in range(hold_out.MOST_PARTNERS + 1)]
    read = sentences([*many, *few], "en", "de")
    (place,) = held_out(read, 0, 1)["test"].tolist()
    assert place >= len(many)
    with pytest.raises(UserError, match="valid_pairs is 1, but only 0 of 203 training"):
        held_out(read, 1, 1)


def test_training_keeps_half() -> None:
    labels = [(words(n, "Src"), f"label {n % 10}") for n in range(100)]
    read = sentences(labels, "en", "de")
    held_out(read, 2, 3)
    with pytest.raises(UserError, match=r"6 pairs .* share sentences with 60 of 100"):
        held_out(read, 3, 3)


@pytest.mark.parametrize("pairs", [[], [("a", "b")], [("a", "b")] * 50])
def test_too_little_is_said(pairs: Pairs) -> None:
    with pytest.raises(UserError, match=r"_pairs is 1, but only 0|share sentences with"):
        held_out(sentences(pairs, "en", "de"), 1, 1)
    with pytest.raises(UserError, match=f"{10**18:,}, but only"):
        held_out(sentences(pairs, "en", "de"), 0, 10**18)


def test_counts_are_those_of_a_plain_count() -> None:
    pairs = corpus(3000, of=700)
    read, other = sentences(pairs, "en", "de"), sentences(corpus(60, 8, of=2000), "en", "de")
    sides = [[pair[side] for pair in pairs] for side in (0, 1)]
    assert read.different == min(len(set(side)) for side in sides)
    assert read.repeated == len(pairs) - len(set(pairs))
    assert read.characters == pytest.approx([np.mean([*map(len, side)]) for side in sides])
    assert read.different_characters == len({*"".join(sides[0] + sides[1])})
    others = [{pair[side] for pair in corpus(60, 8, of=2000)} for side in (0, 1)]
    shares = [s in others[0] or t in others[1] for s, t in pairs]
    assert read.sharing(other).tolist() == shares
    assert 0 < sum(shares) < len(pairs)
    counts = Counter(sides[0])
    assert hold_out._counts(read.source, read.source).tolist() == [counts[s] for s in sides[0]]


def test_case_is_the_lowest_bits() -> None:
    read = sentences([("The Dog", "Ä"), ("the dog", "ä"), ("a dog", "b")], "en", "de")
    for side in read.sides:
        assert len({*side.tolist()}) == 3
        assert len({*(side >> hold_out.CASE).tolist()}) == 2
    upper, lower = read.of(np.array([0])), read.of(np.array([1]))
    assert not upper.sharing(lower).any()
    assert upper.sharing(lower, but_for_case=True).all()


def test_processes_and_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = corpus(12_000, of=9000)
    once = sentences(pairs, "en", "de")
    both = sentences(pairs, "en", "de", Processes(2))
    for one, other in zip(
        (*once.sides, once.positions), (*both.sides, both.positions), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    assert once.positions.tolist() == [*range(len(pairs))]
    places = held_out(once, 100, 100)
    monkeypatch.setattr(hold_out, "BLOCK", 7)
    for name, found in held_out(both, 100, 100).items():
        np.testing.assert_array_equal(found, places[name])


def test_memory_is_that_of_the_digests() -> None:
    """Of a million pairs: a hundred bytes each at most."""
    import tracemalloc

    count = 1_000_000
    random_numbers = np.random.default_rng(0)
    tracemalloc.start()
    try:
        source, target = (random_numbers.integers(0, 2**63, count, np.uint64) for _ in range(2))
        read = Sentences(source, target, np.arange(count, dtype=np.uint32), count, (1.0, 1.0), 2)
        held_out(read, 3000, 3000)
        assert read.different > 0
        assert tracemalloc.get_traced_memory()[1] < 100 * count
    finally:
        tracemalloc.stop()


def test_pairs_are_taken_as_they_are_in_the_files(tmp_path: Path) -> None:
    pairs = [(f" {words(n, 'Src')}\u00a0 ", f"\ufeff{words(n, 'Tgt')}") for n in range(200)]
    for side, name in enumerate(("a.en", "a.de")):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    files = FilesConfig(("a.en", "a.de"), (), (), valid_pairs=5, test_pairs=7)
    data = DataConfig("files", "en", "de", str(tmp_path), PhrasebookConfig(1, 1, 1, 1), files)
    found = hold_out.of_files(data, own_files.named(data))
    assert {name: len(some) for name, some in found.items()} == {"valid": 5, "test": 7}
    assert {*found["valid"], *found["test"]} < {*pairs[1:], (pairs[0][0], pairs[0][1][1:])}
    places = held_out(sentences(pairs, "en", "de"), 5, 7)
    assert found["test"] == [pairs[place] for place in places["test"]]
