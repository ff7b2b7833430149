"""English as Penn Treebank brackets: the grammar composes trees, and sentences are read off them.

A tree is text, ``(NP (DT the) (NN dog))``, so that phrases compose as strings do.  Labels, tags and
tokens are those of the Penn Treebank (Bies et al. 1995, Santorini 1990) without function labels
and traces.
"""

from __future__ import annotations

import re
from functools import cache

from . import morphology

_LEAF = re.compile(r" ([^()]+)\)")
_FIRST_LEAF = re.compile(r" [^(]")


def text(tree: str) -> str:
    """The words of a tree as they are written, without the blanks between tokens."""
    joined = " ".join(_LEAF.findall(tree))
    for token in (" '", " ,", " .", " ?"):
        joined = joined.replace(token, token[1:])
    return joined.replace(" can not ", " cannot ")


# Of phrases that are asked about again and again; the lexicon bounds their number.
words = cache(text)


def finish(tree: str, mark: str) -> str:
    """A sentence from the tree of its clause: the first word capitalised, the mark at its end."""
    match = _FIRST_LEAF.search(tree)
    assert match
    first = match.end() - 1
    return f"(TOP {tree[:first]}{tree[first].upper()}{tree[first + 1 : -1]} (. {mark})))"


@cache
def present(verb: str) -> tuple[str, str, str]:
    """The simple present for I, he, they."""
    if verb == "be":
        return "(VBP am)", "(VBZ is)", "(VBP are)"
    return f"(VBP {verb})", f"(VBZ {morphology.english_third_person(verb)})", f"(VBP {verb})"


_PREPOSITIONS = {
    "to": "(PP (TO to) {})",
    "next to": "(PP (JJ next) (PP (TO to) {}))",
    "in front of": "(PP (IN in) (NP (NP (NN front)) (PP (IN of) {})))",
}


def prepositional(preposition: str, noun_phrase: str) -> str:
    """A preposition with its noun phrase."""
    return _PREPOSITIONS.get(preposition, f"(PP (IN {preposition}) {{}})").format(noun_phrase)


def to_infinitive(verb_phrase: str) -> str:
    """An infinitive with to, from the VP of its verb."""
    return f"(S (VP (TO to) {verb_phrase}))"


def subordinate(conjunction: str, clause: str) -> str:
    """A conjunction with its clause, from what stands in the clause's S."""
    return f"(SBAR (IN {conjunction}) (S {clause}))"


def adjective_phrase(word: str, degree: str = "") -> str:
    """A predicative adjective, perhaps with an adverb of degree."""
    return f"(ADJP (RB {degree}) (JJ {word}))" if degree else f"(ADJP (JJ {word}))"
