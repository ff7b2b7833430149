"""The alignment error rate: by hand, and computed in another way."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from seq2sweep.data.archives import Text
from seq2sweep.errors import UserError
from seq2sweep.evaluate.attention import word_alignment
from seq2sweep.evaluate.attention.word_alignment import Aligner, Gold, Links
from tests.evaluate.attention.test_attention_maps import MEMORY, maps

UPPER = "decoder.1.memory_attention"


def gold(text: str) -> Gold:
    return word_alignment._gold(text, "gold line 1")


def links(*of: tuple[int, int]) -> Links:
    return frozenset(of)


# --- the rate ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "of", "rate"),
    [
        # Perfect; nothing right; one of two.
        (links((0, 0), (1, 1)), "0-0 1-1", 0.0),
        (links((0, 1), (1, 0)), "0-0 1-1", 1.0),
        (links((0, 0), (1, 0)), "0-0 1-1", 1 - (1 + 1) / (2 + 2)),
        # A possible link may be there, or not.
        (links((0, 0), (1, 1)), "0-0 1p1", 1 - (1 + 2) / (2 + 1)),
        (links((0, 0)), "0-0 1p1", 0.0),
        # Och and Ney's: S 3, P 4, A 4, of which 2 are sure and 3 possible.
        (links((0, 0), (1, 1), (2, 3), (3, 3)), "0-0 1-1 2-2 2p3", 1 - (2 + 3) / (4 + 3)),
        # A link that is given as both is sure.
        (links((0, 0)), "0-0 0p0", 0.0),
        # Possible links alone.
        (links((0, 0), (5, 1)), "0p0", 1 - (0 + 1) / (2 + 0)),
        (links(), "0-0", 1.0),
    ],
)
def test_the_error_rate_by_hand(found: Links, of: str, rate: float) -> None:
    assert word_alignment.error_rate([found], [gold(of)]) == pytest.approx(rate)


def test_pairs_are_counted_together() -> None:
    found = [links((0, 0)), links((0, 1), (1, 1), (2, 2))]
    of = [gold("0-0"), gold("0-0 1p1 2-2")]
    assert word_alignment.error_rate(found, of) == pytest.approx(1 - (1 + 1 + 1 + 2) / (4 + 3))
    assert word_alignment.error_rate([links()], [gold("1p1")]) is None


def test_the_error_rate_computed_in_another_way() -> None:
    """By precision of what was found in the possible, recall of the sure: matrices, not sets."""
    chance = random.Random(5)
    for _ in range(50):
        sure_right = possible_right = found_count = sure_count = 0.0
        found, of = [], []
        for _ in range(3):
            n, m = chance.randint(1, 6), chance.randint(1, 6)
            draw = np.random.default_rng(chance.randrange(10**6))
            sure = draw.random((n, m)) < 0.3
            possible = sure | (draw.random((n, m)) < 0.2)
            made = draw.random((n, m)) < 0.4
            sure_right += (made & sure).sum()
            possible_right += (made & possible).sum()
            found_count += made.sum()
            sure_count += sure.sum()
            found.append(frozenset((int(i), int(j)) for i, j in np.argwhere(made)))
            texts = [f"{i}-{j}" for i, j in np.argwhere(sure)]
            texts += [f"{i}p{j}" for i, j in np.argwhere(possible & ~sure)]
            of.append(gold(" ".join(texts)))
        if found_count and sure_count:
            precision, recall = possible_right / found_count, sure_right / sure_count
            weight = found_count / (found_count + sure_count)
            expected = 1 - weight * precision - (1 - weight) * recall
            assert word_alignment.error_rate(found, of) == pytest.approx(expected)


# --- a gold file ---------------------------------------------------------------------------------


def written(folder: Path, text: str) -> Text:
    (folder / "gold").write_text(text, encoding="utf-8")
    return Text(folder / "gold")


def test_a_gold_file_is_read(tmp_path: Path) -> None:
    first, nobody, last = word_alignment.read(written(tmp_path, "0-0 1-2 3p4\n\n0-0\n"), 3)
    assert (first.sure, first.possible) == (
        links((0, 0), (1, 2)),
        links((0, 0), (1, 2), (3, 4)),
    )
    assert nobody.possible == links()
    assert last.where.endswith("gold line 3")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("0-0\n", "has 1 lines for 2 test sentences: it needs one each"),
        ("0-0\n0-0 1:2\n", r"gold line 2: '1:2' is no link such as 3-4 \(sure\) or 3p4"),
        ("0-0\n-1-2\n", "gold line 2: '-1-2' is no link"),
        ("0-0\n1-99999999999999999999\n", "is no link"),
        ("0-0\n²-1\n", "is no link"),
        ("0-0\n" + "x" * 5000 + "\n", f"'{'x' * 40}' is no link"),
        ("", "is empty"),
    ],
)
def test_a_damaged_gold_file_is_one_line(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(UserError, match=problem) as told:
        word_alignment.read(written(tmp_path, text), 2)
    assert "\n" not in str(told.value)


# --- heads that align ----------------------------------------------------------------------------

SOURCE = ["▁a", "▁b", "b", "▁c", "</s>"]
TARGET = ["▁x", "x", "▁y", "▁z", "</s>"]
"""Three words on each side."""
END = [0, 0, 0, 0, 1]
STRAIGHT = [[0.6, 0.2, 0.1, 0.1, 0], [0.4, 0.2, 0.2, 0.2, 0], [0.1, 0.3, 0.3, 0.2, 0.1],
            [0, 0.1, 0.1, 0.3, 0.5], END]  # fmt: skip
"""x to a; y to b by both of its tokens; z to c, as </s> is left out."""
REVERSED = [[0, 0, 0, 1, 0], [0, 0, 0, 1, 0], [0, 0, 0.4, 0.35, 0.25], [1, 0, 0, 0, 0], END]


def heard(*of: str) -> Aligner:
    aligner = Aligner([gold(text) for text in of])
    one = maps({MEMORY: [STRAIGHT, REVERSED], UPPER: [REVERSED, REVERSED]}, SOURCE, TARGET)
    for _ in of:
        aligner.hear(one)
    return aligner


def test_each_head_links_each_word_to_one() -> None:
    aligner = heard("0-0 1-1 2-2")
    assert aligner.of_head(MEMORY, 0) == 0.0
    assert aligner.of_head(MEMORY, 1) == pytest.approx(1 - (1 + 1) / (3 + 3))
    assert aligner.of_head("encoder.0.attention", 0) is None
    found = aligner.result()
    assert found is not None
    assert found["best_head"] == {"layer": MEMORY, "head": 0, "aer": 0.0}
    assert (found["sentences"], found["sure"], found["possible"]) == (1, 3, 3)
    # Of the lower layer the mean is x to c (0.45 to 0.25), y to b, and z to a (0.5 to 0.15).
    assert found["best_layer"]["aer"] == found["mean"] == pytest.approx(1 - 2 / 6)


def test_the_mean_of_a_layer_is_of_weights() -> None:
    """Two heads have a, one has b by more than any has a: most of the weight of all is on a."""
    aligner = Aligner([gold("0-0")])
    heads = ([0.6, 0.3, 0.1], [0.6, 0.3, 0.1], [0.2, 0.7, 0.1])
    weights = [[of_x, [0.0, 0.0, 1.0]] for of_x in heads]
    aligner.hear(maps({MEMORY: weights}, ["▁a", "▁b", "</s>"], ["▁x", "</s>"]))
    found = aligner.result()
    assert found is not None
    assert [aligner.of_head(MEMORY, head) for head in range(3)] == [0.0, 0.0, 1.0]
    assert found["best_layer"]["aer"] == found["mean"] == 0.0


def test_links_are_from_source_to_target() -> None:
    weights = np.array([[0.1, 0.1, 0.8], [0.2, 0.5, 0.3]], np.float32)
    assert word_alignment.strongest(weights) == links((2, 0), (1, 1))


def test_pairs_that_nobody_aligned_are_passed_over() -> None:
    aligner = heard("", "2-0 1-1 0-2", "")
    assert aligner.of_head(MEMORY, 1) == 0.0
    found = aligner.result()
    assert found is not None
    assert found["sentences"] == 1
    assert heard("", "").result() is None
    assert heard("").of_head(MEMORY, 0) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0-0 3-1", "links source word 3, but there are 3"),
        ("1p7", "target word 7, but there are 3"),
    ],
)
def test_a_word_that_is_not_there_is_refused(text: str, said: str) -> None:
    with pytest.raises(UserError, match=f"gold line 1 .*{said}"):
        heard(text)


def test_symbols_beside_words_are_not_counted_as_links() -> None:
    aligner = Aligner([gold("0-0")])
    aligner.hear(maps({"encoder.0.attention": [np.eye(2)]}, ["▁a", "</s>"], ["▁x", "</s>"]))
    assert aligner.result() is None
