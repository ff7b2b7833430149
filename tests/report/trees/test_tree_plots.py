"""What is marked in drawn trees is what F1 counts, and nothing in a tree is taken for markup."""

from __future__ import annotations

import re
from collections import Counter
from xml.etree import ElementTree

from hypothesis import given

from seq2sweep.data.treebank.trees import Bracket, Tree, parse_tree
from seq2sweep.evaluate.brackets import score_trees
from seq2sweep.report.trees.tree_plots import begin, differences, draw
from tests.data.treebank.random_trees import trees


def elements(svg: str) -> list[ElementTree.Element]:
    """All of them; raises where it is no XML."""
    return list(ElementTree.fromstring(svg).iter())


def texts(svg: str, kind: str) -> list[str]:
    return [
        str(element.text)
        for element in elements(svg)
        if element.get("class", "").split()[:1] == [kind]
    ]


@given(trees(), trees())
def test_what_is_marked_is_what_f1_counts(gold: Tree, brackets: Tree) -> None:
    count = len(gold.words)
    other = tuple(
        Bracket(b.label, min(b.start, count), min(b.end, count)) for b in brackets.brackets
    )
    found = gold._replace(brackets=other)
    scores = score_trees([found], [gold])
    compared = differences(gold, found)
    if compared is None:
        assert scores["errors"] + scores["skipped"] == 1
        return
    labels = scores["by_label"].values()
    assert sum(one["gold"] for one in labels) == compared.gold
    if compared.gold + compared.found:
        assert abs(scores["f1"] - compared.f1) < 1e-4
        assert (scores["complete"] == 100) == (not compared.missed and not compared.extra)
    if compared.gold:
        missed = 100 * (1 - len(compared.missed) / compared.gold)
        assert abs(scores["recall"] - missed) < 1e-4
    if compared.found:
        right = 100 * (1 - len(compared.extra) / compared.found)
        assert abs(scores["precision"] - right) < 1e-4


def test_punctuation_alone_is_no_mistake() -> None:
    gold, found = map(parse_tree, ("(TOP (X (: --) (. .)))", "(TOP (S (: --) (. .)))"))
    compared = differences(gold, found)
    assert compared is not None
    assert (compared.missed, compared.extra, compared.f1) == (frozenset(), frozenset(), 100.0)


def test_marks_stand_at_the_brackets_that_differ() -> None:
    gold = parse_tree("(TOP (S (NP (D a) (N b)) (VP (V c) (PRT (R d))) (. .)))")
    found = parse_tree("(TOP (S (NP (D a)) (N b) (VP (V c) (ADVP (R d)) (. .))))")
    compared = differences(gold, found)
    assert compared is not None
    assert [gold.brackets[i] for i in compared.missed] == [Bracket("NP", 0, 2)]
    assert [found.brackets[i] for i in compared.extra] == [Bracket("NP", 0, 1)]
    drawn = draw(found, "about", "x", compared.extra, "extra")
    marked = [element for element in elements(drawn) if "extra" in element.get("class", "")]
    assert Counter(element.tag for element in marked) == {"path": 1, "rect": 1, "text": 1}
    assert [element.text for element in marked if element.tag == "text"] == ["NP"]


def test_a_bracket_twice_is_wrong_once() -> None:
    once, twice = parse_tree("(S (NP (N a)) (V b))"), parse_tree("(S (NP (NP (N a))) (V b))")
    compared = differences(once, twice)
    assert compared is not None
    assert (len(compared.missed), len(compared.extra)) == (0, 1)


def test_what_is_around_the_sentence_does_not_count() -> None:
    compared = differences(parse_tree("(TOP (S-1 (N a)))"), parse_tree("(S (N a))"))
    assert compared is not None
    assert (compared.gold, compared.found, compared.f1) == (1, 1, 100)


def test_other_words_are_not_compared() -> None:
    assert differences(parse_tree("(S (N a))"), parse_tree("(S (N b))")) is None
    assert differences(parse_tree("(S (N a))"), parse_tree("(S (. .))")) is None
    assert score_trees([parse_tree("(S (. .))")], [parse_tree("(S (. .))")])["skipped"] == 1
    assert differences(parse_tree("(S (N a))"), Tree((), (), ())) is None


def test_every_word_is_drawn_once_and_in_order() -> None:
    tree = parse_tree("(S (NP (D the) (N the)) (VP (V is) (. .)))")
    drawn = draw(tree, "about", "x")
    assert texts(drawn, "word") == ["the", "the", "is", "."]
    assert texts(drawn, "tag") == ["D", "N", "V", "."]
    assert sorted(texts(drawn, "label")) == ["NP", "S", "VP"]
    svg = elements(drawn)[0]
    assert (svg.get("role"), svg.get("aria-labelledby")) == ("img", "x-title")
    assert (svg[0].tag, svg[0].get("id"), svg[0].text) == ("title", "x-title", "about")


def test_what_is_hostile_is_text() -> None:
    hostile = "<script>alert('x')</script>&\"y\""
    tree = Tree((hostile,), (hostile,), (Bracket(hostile, 0, 1),))
    drawn = draw(tree, hostile, "x", {0}, "extra")
    assert "<script" not in drawn
    found = elements(drawn)
    assert {element.tag for element in found} == {"svg", "title", "path", "rect", "text"}
    assert not any(name.startswith("on") for element in found for name in element.attrib)
    assert str(found[1].text) == hostile
    # What is cut is in full in its title.
    assert [str(e.text) for e in found if e.tag == "title"] == [hostile] * 4


def test_no_colour_of_its_own() -> None:
    """The page's variables say it, so that a dark page shows it too."""
    drawn = draw(parse_tree("(S (N a))"), "", "x", {0}, "missed")
    assert not re.search(r"#[0-9a-f]{3}|style=.(?!min-width)|fill=|stroke=|rgb", drawn)


def test_the_beginning_of_a_long_tree() -> None:
    tree = parse_tree("(S (NP (D a) (N b)) (VP (V c) (NP (N d))) (. .))")
    first = begin(tree, 3)
    assert first.words == ("a", "b", "c")
    assert first.brackets[:3] == (Bracket("S…", 0, 3), Bracket("NP", 0, 2), Bracket("VP…", 2, 3))
    assert first.brackets[3].start == first.brackets[3].end  # not drawn
    assert sorted(texts(draw(first, "", "x"), "label")) == ["NP", "S…", "VP…"]
    assert [b.label for b in begin(tree, 4).brackets] == ["S…", "NP", "VP", "NP"]
    assert begin(tree, 5) is tree
    assert len(draw(begin(Tree(("w",) * 500, ("N",) * 500, ()), 60), "", "x").split("word")) == 61


def test_marks_survive_the_cut() -> None:
    gold = parse_tree("(S (NP (D a) (N b)) (V c) (N d))")
    found = parse_tree("(S (D a) (N b) (V c) (NP (N d)))")
    compared = differences(gold, found)
    assert compared is not None
    drawn = draw(begin(gold, 3), "", "x", compared.missed, "missed")
    assert [e.text for e in elements(drawn) if e.get("class") == "label missed"] == ["NP"]
    cut = draw(begin(found, 3), "", "x", compared.extra, "extra")
    assert "extra" not in cut
