"""Sentences in, constituency trees out, and F1 (section 6.3)."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from seq2sweep.config import EvaluateConfig
from seq2sweep.data.treebank.linearisation import rebuild
from seq2sweep.data.treebank.trees import Bracket, Tree, clean, parse_tree, words_of
from seq2sweep.data.vocabulary import Vocabulary
from seq2sweep.decode.beam import longest_output, translate
from seq2sweep.decode.grouping import longest_input
from seq2sweep.evaluate.bleu import rounded
from seq2sweep.evaluate.brackets import SIGNATURE, score_trees
from seq2sweep.model.architecture import Architecture
from seq2sweep.parallel import Mapper, serial

TELLING = ("f1", "precision", "recall", "complete")
"""Of what `score_trees` gives, what is said of a second way to parse."""


@dataclass(frozen=True)
class Parses:
    """Trees of sentences in their order, one line each, and what was amiss with the symbols.

    malformed: sentences whose symbols were no tree over exactly their words; cut: those whose
    output had no room for more, so that it might have been longer; repairs: how often of each kind.
    """

    trees: list[str]
    malformed: int = 0
    cut: int = 0
    repairs: dict[str, int] = field(default_factory=dict)

    @property
    def faults(self) -> dict[str, Any]:
        """All but the trees."""
        return {"malformed": self.malformed, "cut": self.cut, "repairs": self.repairs}


def parse(
    model: Architecture,
    vocabulary: Vocabulary,
    sentences: Sequence[str],
    config: EvaluateConfig,
    *,
    gold: Sequence[str] = (),
    well_formed: bool = True,
    on_done: Callable[[int], object] = lambda sentences: None,
    mapper: Mapper = serial,
) -> Parses:
    """Parse sentences, of words with single blanks between.

    gold: their trees, whose tags the leaves get: EVALB deletes punctuation by its tag, and gold
    tags are what publications score with. Without, tags are the model's, if it writes them, else
    XX. well_formed: search among trees
    over exactly the words; else among all symbols, as the paper, and trees are made of what comes.
    """
    words = [sentence.split(" ") for sentence in sentences]
    found = translate(
        model,
        vocabulary,
        sentences,
        config,
        None,
        on_done,
        mapper=mapper,
        words=[*map(len, words)] if well_formed else None,
    )
    most = longest_input(config, model)
    lengths = [min(len(tokens), most) - 1 for tokens in vocabulary.encode(sentences)]
    trees, repairs, malformed, cut = [], Counter[str](), 0, 0
    for i, (best, *_) in enumerate(found):
        symbols = words_of(best.text)
        tags = parse_tree(gold[i]).tags if gold else None
        tree, repaired = rebuild(symbols, words[i], tags)
        trees.append(str(tree))
        repairs.update(dataclasses.asdict(repaired))
        malformed += bool(repaired)
        longest = longest_output(lengths[i], config.max_extra_tokens, model.max_length)
        # No room for more and the end: for any symbol; among trees, for a bracket, which is two.
        cut += len(symbols) + (3 if well_formed else 1) > longest
    return Parses(trees, malformed, cut, dict(repairs))


def score(trees: Sequence[str], gold: Sequence[str]) -> dict[str, Any]:
    """`score_trees` of lines, with its `signature`. Tags are gold's, and are not scored."""
    found = score_trees(map(parse_tree, trees), [*map(parse_tree, gold)])
    for scores in (found, found["short"]):
        del scores["tagging"]
    return found | {"signature": SIGNATURE}


def against(parses: Parses, gold: Sequence[str], f1: float) -> dict[str, Any]:
    """What another way to parse comes to; `difference`: f1, of the first way, less its own."""
    scores = score(parses.trees, gold)
    told = {key: scores[key] for key in TELLING}
    return told | {"difference": rounded(f1 - scores["f1"])} | parses.faults


def floors(gold: Sequence[str]) -> dict[str, dict[str, float]]:
    """Scores that need no model: `flat`, one S over all words; and `right_branching`, an S over
    all, an NP over the first word, and a VP from each other word to the end."""
    trees = [clean(parse_tree(line)) for line in gold]
    found = {}
    for name, brackets_of in (("flat", _flat), ("right_branching", _right_branching)):
        scores = score_trees([t._replace(brackets=brackets_of(t)) for t in trees], trees)
        found[name] = {key: scores[key] for key in TELLING[:3]}
    return found


def _flat(tree: Tree) -> tuple[Bracket, ...]:
    return (Bracket("S", 0, len(tree.words)),)


def _right_branching(tree: Tree) -> tuple[Bracket, ...]:
    end = len(tree.words)
    rest = (Bracket("VP", start, end) for start in range(1, end))
    return (Bracket("S", 0, end), Bracket("NP", 0, 1), *rest)
