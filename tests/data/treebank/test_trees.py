"""Reading, cleaning and writing trees, hostile ones too."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given

from seq2sweep.data.treebank import trees as trees_module
from seq2sweep.data.treebank.corpora import read_trees
from seq2sweep.data.treebank.trees import (
    Bracket,
    Tree,
    TreeError,
    category,
    clean,
    parse_tree,
)
from seq2sweep.errors import UserError
from tests.data.treebank.random_trees import trees

JOHN = "(TOP (S (NP (NNP John)) (VP (VBZ has) (NP (DT a) (NN dog))) (. .)))"


def test_a_tree_is_its_words_tags_and_brackets() -> None:
    tree = clean(parse_tree(JOHN))
    assert tree.words == ("John", "has", "a", "dog", ".")
    assert tree.tags == ("NNP", "VBZ", "DT", "NN", ".")
    assert tree.brackets == (
        Bracket("S", 0, 5), Bracket("NP", 0, 1), Bracket("VP", 1, 4), Bracket("NP", 2, 4)
    )  # fmt: skip
    assert str(tree) == JOHN


def test_cleaning_takes_traces_and_what_is_empty_without_them() -> None:
    raw = (
        "( (S-1 (NP-SBJ=2 (-NONE- *PRO*)) (VP (VB go) (SBAR (-NONE- 0) (S (-NONE- *T*-3)))) "
        "(-LRB- -LRB-) (ADVP|PRT (RB up))) )"
    )
    assert str(clean(parse_tree(raw))) == (
        "(TOP (S (VP (VB go)) (-LRB- -LRB-) (ADVP|PRT (RB up))))"
    )
    assert category("NP-SBJ-1") == "NP"
    assert category("NP=2") == "NP"
    assert category("-LRB-") == "-LRB-"


@pytest.mark.parametrize(
    "outer", ["( {} )", "(TOP {})", "(ROOT {})", "(S1 {})", "( (TOP {}) )", "{}"]
)
def test_what_is_around_a_sentence_is_nothing(outer: str) -> None:
    roots = "(S (NN a)) (NP (NN b))"
    assert clean(parse_tree(outer.format(roots))).brackets == (
        Bracket("S", 0, 1), Bracket("NP", 1, 2)
    )  # fmt: skip
    # Within a constituent it is a label as any other.
    inner = clean(parse_tree("(S (TOP (NN a)) (NN b))"))
    assert inner.brackets == (Bracket("S", 0, 2), Bracket("TOP", 0, 1))


def test_trees_go_over_lines_as_they_like(tmp_path: Path) -> None:
    file = tmp_path / "wsj_0001.mrg"
    file.write_text("\n\n( (S (NN a)\n  (NN b)))\n( (NP\n(NN c\n) ) ) ( (X (NN d)))\n")
    assert [str(clean(tree)) for tree in read_trees(file)] == [
        "(TOP (S (NN a) (NN b)))", "(TOP (NP (NN c)))", "(TOP (X (NN d)))"
    ]  # fmt: skip


def test_only_plain_spaces_part_words() -> None:
    """CRAFT has words with a hair space in them."""
    assert parse_tree("(NP (NN Xpd\u200aTTD) (NN a\u00a0b))").words == ("Xpd\u200aTTD", "a\u00a0b")


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("(S (NN a)\n(NP (NN b))", 1, "1 brackets that begin here are not closed"),
        ("(S (NN a))\n)", 2, "a bracket is closed that is not open"),
        ("(S (NN a))\nb", 2, "'b' outside of any tree"),
        ("(S\n(NN a b))", 2, "'b' is a second word, or one beside brackets"),
        ("(S\n(NN a (NP b)))", 2, "the word 'a' has a bracket beside it"),
        ("(S (NN a)\nb)", 2, "'b' is a second word, or one beside brackets"),
        ("(" * 10_000, 1, "10000 brackets that begin here are not closed"),
    ],
)
def test_what_is_no_tree_is_one_line(tmp_path: Path, text: str, line: int, what: str) -> None:
    file = tmp_path / "some.trees"
    file.write_text(text)
    with pytest.raises(UserError) as caught:
        list(read_trees(file))
    assert str(caught.value) == f"{file} line {line}: {what}"
    if "\n" not in text:
        with pytest.raises(TreeError):
            parse_tree(text)


@pytest.mark.parametrize(
    "text",
    [
        "(S (NP (NN dog))\n(PRN (-LRB- () (NP (NN cat)) (-RRB- )))\n(VP (VBZ barks)))",
        "(S (NP (DT The)\n(NN )) (VP (VBZ barks)))",
        "(S (NN a)\n())",
    ],
)
def test_a_word_that_is_lost_is_told(tmp_path: Path, text: str) -> None:
    """The brackets fit, and the sentence would be another."""
    file = tmp_path / "some.trees"
    file.write_text(text)
    with pytest.raises(UserError, match=r"line 2: a bracket has no word \(a word \( or \) is"):
        list(read_trees(file))
    # What a model writes may be so, and is scored.
    assert parse_tree(text).words
    file.write_text("(())\n( (S) )\n(S (NN a))")
    assert [tree.words for tree in read_trees(file)] == [(), (), ("a",)]


def test_byte_order_marks_are_no_part_of_a_word(tmp_path: Path) -> None:
    """Another parser may have taken that of its text for one."""
    file = tmp_path / "some.trees"
    file.write_text("\ufeff(S (NN \ufeffThe) (NN end))")
    assert [tree.words for tree in read_trees(file)] == [("The", "end")]


def test_a_bracket_that_is_missing_is_told_before_memory_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trees_module, "LONGEST", 30)
    file = tmp_path / "some.trees"
    file.write_text("(S (NN a))\n(S (NN b)\n" + "(S (NN c))\n" * 100)
    with pytest.raises(UserError, match=r"line 2: 30 words and brackets from here on are no whole"):
        list(read_trees(file))
    file.write_text("(S (NN a))\n" * 100)
    assert len(list(read_trees(file))) == 100


def test_depth_and_length_are_no_limit() -> None:
    deep = "(S " * 10_000 + "(NN a)" + ")" * 10_000
    assert len(clean(parse_tree(deep)).brackets) == 10_000
    assert str(clean(parse_tree(deep))) == f"(TOP {deep})"
    long = "(S " + " ".join(f"(NN word{i})" for i in range(70_000)) + ")"
    assert len(long) > 1_000_000
    assert str(clean(parse_tree(long))) == f"(TOP {long})"


@pytest.mark.parametrize("text", ["", "()", "(S)", "( (S (NP (-NONE- *))) )"])
def test_without_a_word_nothing_is_left(text: str) -> None:
    assert clean(parse_tree(text)) == Tree((), (), ())
    assert str(clean(parse_tree(text))) == "(TOP)"


@given(trees())
def test_what_is_written_is_read_again(tree: Tree) -> None:
    assert clean(parse_tree(str(tree))) == tree
