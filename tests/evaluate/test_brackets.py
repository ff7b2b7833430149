"""F1 by EVALB's rules. The figures of `RULES` are what EVALB (with COLLINS.prm) printed."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given

from seq2sweep.cli import main
from seq2sweep.data.treebank.linearisation import linearise, rebuild
from seq2sweep.data.treebank.trees import Bracket, Tree, parse_tree
from seq2sweep.errors import UserError
from seq2sweep.evaluate.brackets import left_out, score_files, score_trees
from tests.data.treebank.random_trees import LABELS, TAGS, trees
from tests.data.treebank.real_trees import REAL, real_trees

S = "(TOP (S (NP (NN a)) (VP (VB b))))"
RULES = [
    # gold, hypothesis: brackets matched, of gold, of the hypothesis; crossing; words, tags
    (S, S, (3, 3, 3, 0, 2, 2)),
    # label
    (S, "(TOP (S (ADJP (NN a)) (VP (VB b))))", (2, 3, 3, 0, 2, 2)),
    # each bracket is used once
    ("(TOP (S (VP (VP (VP (VB a)))) (NN b)))", "(TOP (S (VP (VP (VB a))) (NN b)))",
     (3, 4, 3, 0, 2, 2)),
    ("(TOP (S (NP (NP (NN a))) (VP (VB b))))", "(TOP (S (NP (NP (NP (NN a)))) (VP (VB b))))",
     (4, 4, 5, 0, 2, 2)),
    # function labels, and labels that begin with a dash
    ("(TOP (S (NP-SBJ (NN a)) (NP=2 (NN b))))", "(TOP (S (NP (NN a)) (NP-TMP (NN b))))",
     (3, 3, 3, 0, 2, 2)),
    ("(TOP (S (-X (NN a)) (VP (VB b))))", "(TOP (S (-Y (NN a)) (VP (VB b))))", (3, 3, 3, 0, 2, 2)),
    # ADVP is PRT, of tags as well
    ("(TOP (S (PRT (RP a)) (VP (VB b))))", "(TOP (S (ADVP (RP a)) (VP (VB b))))",
     (3, 3, 3, 0, 2, 2)),
    ("(TOP (S (NP (PRT a)) (VP (VB b))))", "(TOP (S (NP (ADVP a)) (VP (VB b))))",
     (3, 3, 3, 0, 2, 2)),
    # punctuation goes, wherever it hangs, and what holds nothing else
    ("(TOP (S (NP (NN a) (, ,)) (VP (VB b)) (. .)))",
     "(TOP (S (NP (NN a)) (, ,) (VP (VB b) (. .))))", (3, 3, 3, 0, 2, 2)),
    ("(TOP (S (NP (NN a)) (PRN (, ,)) (VP (VB b))))",
     "(TOP (S (NP (NN a)) (X (, ,)) (VP (VB b))))", (3, 3, 3, 0, 2, 2)),
    # brackets are words
    ("(TOP (S (NP (-LRB- -LRB-) (NN a)) (VP (VB b))))",
     "(TOP (S (-LRB- -LRB-) (NP (NN a)) (VP (VB b))))", (2, 3, 3, 0, 3, 3)),
    # a bracket that crosses
    ("(TOP (S (NP (NN a) (NN b)) (VP (VB c) (NN d))))",
     "(TOP (S (NN a) (NP (NN b) (VB c)) (NN d)))", (1, 3, 2, 1, 4, 4)),
    ("(TOP (S (NP (NN a) (NN b)) (VB c) (NN d)))",
     "(TOP (S (NN a) (NP (NN b) (VB c)) (NN d)))", (1, 2, 2, 1, 4, 4)),
    ("(TOP (S (NN a) (NN b) (VP (VB c) (NN d))))",
     "(TOP (S (NN a) (NP (NN b) (VB c)) (NN d)))", (1, 2, 2, 1, 4, 4)),
    # traces
    ("(TOP (S (NP (-NONE- *T*)) (VP (VB a) (NP (NN b)))))", "(TOP (S (VP (VB a) (NP (NN b)))))",
     (3, 3, 3, 0, 2, 2)),
    # an outer bracket without a label counts, unlike TOP
    ("( (S (NP (NN a)) (VP (VB b))) )", S, (3, 4, 3, 0, 2, 2)),
    # tags
    (S, "(TOP (S (NP (NNS a)) (VP (VB b))))", (3, 3, 3, 0, 2, 1)),
    # the flat tree
    ("(TOP (S (NP (NN a) (NN b)) (VP (VB c))))", "(TOP (S (NN a) (NN b) (VB c)))",
     (1, 3, 1, 0, 3, 3)),
]  # fmt: skip


@pytest.mark.parametrize(("gold", "hypothesis", "printed"), RULES)
def test_each_rule(gold: str, hypothesis: str, printed: tuple[int, ...]) -> None:
    matched, of_gold, of_hypothesis, crossing, words, tags = printed
    found = score_trees([parse_tree(hypothesis)], [parse_tree(gold)])
    recall, precision = 100 * matched / of_gold, 100 * matched / of_hypothesis
    expected = {
        "recall": recall,
        "precision": precision,
        "f1": 2 * precision * recall / (precision + recall),
        "complete": 100.0 * (matched == of_gold == of_hypothesis),
        "average_crossing": crossing,
        "no_crossing": 100.0 * (crossing == 0),
        "two_or_less_crossing": 100.0,
        "tagging": 100 * tags / words,
        "sentences": 1,
        "errors": 0,
        "skipped": 0,
    }
    assert {key: found[key] for key in expected} == pytest.approx(expected, abs=1e-4)
    assert found["short"] == pytest.approx(expected, abs=1e-4)
    assert sum(of["gold"] for of in found["by_label"].values()) == of_gold


@pytest.mark.parametrize(
    "hypothesis",
    [
        "(TOP (S (NP (NN a)) (VP (VB c))))",  # another word
        "(TOP (S (NP (NN a)) (VP (VB b) (NN c))))",  # one more
        "(TOP (S (NP (XX a)) (, b)))",  # a tag that is not gold's deletes the word
        "(TOP (S (NP (NN a)) (VP (VB b)))",  # no tree
    ],
)
def test_what_cannot_be_compared_is_an_error_in_no_figure(
    hypothesis: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, lines in (("found", [S, hypothesis]), ("gold", [S, S])):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    assert main(["score", str(tmp_path / "found"), str(tmp_path / "gold"), "--trees"]) == 0
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert (found["sentences"], found["errors"], found["skipped"]) == (2, 1, 0)
    assert (found["f1"], found["complete"], found["error_lines"]) == (100.0, 100.0, [2])
    assert "1 of 2 sentences are in no metric" in said.err
    assert "(lines 2)" in said.err


def test_a_line_without_a_word_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "found").write_text(f"{S}\n\n(TOP (, ,))\n")
    (tmp_path / "gold").write_text(f"{S}\n" * 3)
    found = score_files(tmp_path / "found", tmp_path / "gold")
    assert (found["errors"], found["skipped"], found["error_lines"]) == (0, 2, [2, 3])
    assert left_out(found) == 2


def test_what_has_no_word_in_gold_is_skipped_and_missed_by_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dots = "(TOP (X (: ...) (. .)))"
    (tmp_path / "found").write_text(f"{S}\n{dots}\n{dots}\n")
    (tmp_path / "gold").write_text(f"{S}\n{dots}\n{S}\n")
    found = score_files(tmp_path / "found", tmp_path / "gold")
    assert [found[key] for key in ("errors", "skipped", "wordless", "error_lines")] == [
        0,
        2,
        1,
        [3],
    ]
    assert found["short"]["wordless"] == left_out(found) == 1
    (tmp_path / "found").write_text(f"{S}\n{dots}\n{S}\n")
    assert main(["score", str(tmp_path / "found"), str(tmp_path / "gold"), "--trees"]) == 0
    assert capsys.readouterr().err == ""


def test_long_sentences_are_not_short_and_punctuation_makes_them_long() -> None:
    for words, short in ((40, 1), (41, 0), (250, 0)):
        tree = parse_tree("(TOP (S " + " ".join(["(, ,)"] * (words - 1)) + " (NN a)))")
        found = score_trees([tree], [tree])
        assert (found["f1"], found["short"]["sentences"]) == (100.0, short)


def test_labels_have_figures_of_their_own() -> None:
    gold = "(TOP (S (NP (NN a)) (VP (VB b) (PRT (RP c)))))"
    found = score_trees(
        [parse_tree("(TOP (S (NP (NN a)) (NP (VB b) (ADVP (RP c)))))")], [parse_tree(gold)]
    )
    assert {label: (of["gold"], of["precision"], of["recall"])
            for label, of in found["by_label"].items()} == {
        "ADVP": (1, 100.0, 100.0), "NP": (1, 50.0, 100.0), "S": (1, 100.0, 100.0),
        "VP": (1, 0.0, 0.0),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("found", "gold", "what"),
    [
        (f"{S}\n", f"{S}\n{S}\n", "found has 1 lines and "),
        (f"{S}\n{S}\n", f"{S}\n(S (NN a)\n", "gold line 2: 1 brackets that begin here are not"),
        (f"{S}\n", "", "gold is empty"),
    ],
)
def test_files_that_do_not_go_together_are_one_line(
    found: str, gold: str, what: str, tmp_path: Path
) -> None:
    (tmp_path / "found").write_text(found)
    (tmp_path / "gold").write_text(gold)
    with pytest.raises(UserError, match=what):
        score_files(tmp_path / "found", tmp_path / "gold")


def test_languages_go_with_translations_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("found", "gold"):
        (tmp_path / name).write_text(f"{S}\n")
    files = [str(tmp_path / "found"), str(tmp_path / "gold")]
    assert main(["score", *files, "--trees", "--to", "de"]) == 2
    assert "--to and --from go with translations" in capsys.readouterr().err
    assert main(["score", *files, "--trees", "--lowercase"]) == 2
    assert "--lowercase goes with translations" in capsys.readouterr().err
    assert main(["score", *files]) == 2
    assert "add --to LANGUAGE" in capsys.readouterr().err


def perturbed(tree: Tree, draw: random.Random) -> Tree:
    """As a parser might get it wrong: labels, brackets, tags, words, symbols."""
    tags, words = list(tree.tags), list(tree.words)
    symbols = linearise(tree)
    for _ in range(draw.choice([0, 0, 1, 2, 4])):
        kind, at = draw.random(), draw.randrange(len(symbols) + 1)
        if kind < 0.3 and at < len(symbols):
            del symbols[at]
        elif kind < 0.6:
            symbols.insert(at, draw.choice("()") + draw.choice(LABELS))
        elif kind < 0.8 and at < len(symbols) and symbols[at] != "XX":
            symbols[at] = symbols[at][0] + draw.choice(LABELS)
        elif tags:
            tags[draw.randrange(len(tags))] = draw.choice(TAGS)
    if words and draw.random() < 0.03:
        words[-1] = "other"
    return rebuild(symbols, words, tags)[0]


@given(trees(), trees())
def test_precision_of_one_way_is_recall_of_the_other(one: Tree, other: Tree) -> None:
    count = min(len(one.words), len(other.words))
    same = [
        Tree(
            tree.words[:count],
            ("NN",) * count,
            tuple(Bracket(b.label, b.start, min(b.end, count)) for b in tree.brackets
                  if b.start < min(b.end, count)),
        )
        for tree in (one, other)
    ]  # fmt: skip
    there, back = score_trees(same[:1], same[1:]), score_trees(same[1:], same[:1])
    assert (there["precision"], there["recall"]) == (back["recall"], back["precision"])
    assert there["f1"] == back["f1"]
    assert score_trees(same, same)["errors"] == 0
    for tree in same:
        itself = score_trees([tree], [tree])
        assert itself["f1"] == (100.0 if tree.brackets else 0.0)
        assert itself["average_crossing"] == 0.0


@pytest.mark.parametrize("archive", [None, *REAL])
def test_it_prints_what_evalb_prints(archive: str | None, tmp_path: Path, thorough: bool) -> None:
    """EVALB: a folder with its evalb.c and COLLINS.prm, which are no part of the project."""
    home, compiler = os.environ.get("EVALB"), shutil.which("cc")
    if home is None or compiler is None:
        pytest.skip("needs a C compiler, and EVALB=folder with evalb.c and COLLINS.prm")
    program = tmp_path / "evalb"
    subprocess.run([compiler, "-w", "-o", program, Path(home) / "evalb.c"], check=True)
    draw = random.Random(1)
    if archive is None:
        gold = [random_tree(draw) for _ in range(2000)]
    else:
        # EVALB has room for 200 words and brackets.
        fit = real_trees(archive, tmp_path, thorough)
        gold = [tree for tree in fit if max(len(tree.words), len(tree.brackets) + 9) < 200]
        assert len(gold) > 200
    hypotheses = [perturbed(tree, draw) for tree in gold]
    for name, some in (("gold", gold), ("found", hypotheses)):
        (tmp_path / name).write_text("".join(f"{tree}\n" for tree in some))
    for one, other in (("gold", "found"), ("found", "gold")):
        command = [program, "-p", Path(home) / "COLLINS.prm", "-e", "100000", one, other]
        done = subprocess.run(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        printed = re.findall(r"= +([\d.]+)", done.stdout[done.stdout.index("=== Summary") :])
        found = score_files(tmp_path / other, tmp_path / one)
        assert [f"{float(text):.2f}" for text in printed] == as_printed(found) + as_printed(
            found["short"]
        )


def as_printed(scores: dict[str, float]) -> list[str]:
    compared = scores["sentences"] - scores["errors"] - scores["skipped"]
    keys = ("recall", "precision", "f1", "complete", "average_crossing", "no_crossing",
            "two_or_less_crossing", "tagging")  # fmt: skip
    counts = (scores["sentences"], scores["errors"], scores["skipped"], compared)
    return [f"{value:.2f}" for value in (*counts, *(scores[key] for key in keys))]


def random_tree(draw: random.Random) -> Tree:
    count = draw.randrange(1, 60)
    kinds = ["XX"] * 6 + [f"{side}{label}" for side in "()" for label in LABELS]
    tree, _ = rebuild(
        ["(S", *draw.choices(kinds, k=3 * count)], [f"w{i}" for i in range(count)],
        draw.choices(TAGS, k=count),
    )  # fmt: skip
    return tree
