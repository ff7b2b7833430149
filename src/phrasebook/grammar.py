"""The constructions: every kind of sentence the phrasebook knows, with its share of the output.

A construction is a name, a weight, and a list of *variants*; a variant is a function from digits
and a *focus* (the frame, noun or adjective the sentence is about) to a sentence.  Every pair of
variant and focus is a derivation space of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import lexicon_words, penn, restrictions
from .clauses import (
    Digits,
    RejectedError,
    Shape,
    build_clause,
    frames_for,
    with_shape,
)
from .lexicon import Frame, reserved
from .nominals import Nominal
from .phrases import Clause


@dataclass(slots=True)
class Sentence:
    """A finished pair, the English as a tree, its tags, and the word combinations it shows."""

    tree: str
    german: str
    tags: set[str]
    clauses: list[Clause] = field(default_factory=list)
    nominals: list[Nominal] = field(default_factory=list)

    @property
    def english(self) -> str:
        """The English as it is written."""
        return penn.text(self.tree)


Builder = Callable[[Digits, Any], Sentence]


@dataclass(frozen=True, slots=True)
class Variant:
    """One derivation rule with the foci it applies to."""

    construction: str
    weight: int
    build: Builder
    foci: tuple[Any, ...]


VARIANTS: list[Variant] = []


_OUTLINES: set[tuple[str, Shape, str]] = set()


def fresh(group: str, shape: Shape, foci: Sequence[Frame]) -> list[Frame]:
    """Leave out frames that this outline has served already.

    The kind of object means nothing to a verb that takes none, so shapes that differ in their
    object alone would derive the same sentence twice.
    """
    outline = with_shape(shape, object="")
    result = []
    for frame in foci:
        if not frame.accusative and not frame.prepositional:
            key = (group, outline, f"{frame.verb.name} {frame.subjects[0].english} {frame.bare}")
            if key in _OUTLINES:
                continue
            _OUTLINES.add(key)
        result.append(frame)
    return result


def add(construction: str, weight: int, foci: Sequence[Any], build: Builder) -> None:
    """Register a variant; one without foci would never be drawn and is a mistake."""
    if not foci:
        raise ValueError(f"no focus fits {construction}")
    VARIANTS.append(Variant(construction, weight, build, tuple(foci)))


def sentence(english: str, german: str, tags: set[str], mark: str, *parts: Clause) -> Sentence:
    """Capitalise and punctuate (the English is a tree), and collect the tags of the clauses."""
    for part in parts:
        tags |= part.tags
    return Sentence(
        penn.finish(english, mark),
        german[0].upper() + german[1:] + mark,
        tags,
        list(parts),
    )


def combinations_reserved(construction: str, result: Sentence) -> bool:
    """Whether the sentence shows a combination of words that training must not see."""
    nominals = list(result.nominals)
    for clause in result.clauses:
        verb = clause.frame.verb.name
        if reserved("construction-verb", construction, verb):
            return True
        for nominal in (clause.accusative, clause.prepositional):
            if nominal is not None:
                nominals.append(nominal)
                for noun in (nominal.noun, nominal.second):
                    if noun is not None and reserved("verb-noun", verb, noun.english):
                        return True
        nominals += [n for n in (clause.subject, clause.dative) if n is not None]
    return any(
        n.adjective is not None
        and n.noun is not None
        and reserved("adjective-noun", n.adjective.english, n.noun.english)
        for n in nominals
    )


# Statements ----------------------------------------------------------------------------------


def _statement(shape: Shape) -> Builder:
    def build(digits: Digits, frame: Frame) -> Sentence:
        clause = build_clause(digits, frame, shape)
        digits.close()
        tags: set[str] = set()
        if shape.front and clause.time:
            tags.add("word_order_v2_inversion")
            english = f"(S {clause.time[0]} {clause.english_statement(time=False)})"
            german = clause.german_main(front=clause.time[1], time=False)
        else:
            english, german = f"(S {clause.english_statement()})", clause.german_main()
        return sentence(english, german, tags, ".", clause)

    return build


def check_asked(clause: Clause) -> None:
    """Nobody asks others what he is doing himself."""
    if clause.subject.agreement == "1sg" or clause.subject.name == "we":
        raise RejectedError


def _question(shape: Shape) -> Builder:
    def build(digits: Digits, frame: Frame) -> Sentence:
        clause = build_clause(digits, frame, shape)
        check_asked(clause)
        digits.close()
        return sentence(
            clause.english_question(),
            clause.german_question(),
            {"yes_no_question"},
            "?",
            clause,
        )

    return build


_SUBJECTS = ("noun", "pronoun", "name", "adjective", "plural", "number", "pair")


def _register_statements() -> None:
    statement_shapes: list[tuple[int, Shape]] = [
        (95, Shape("noun", "the", "progressive")),
        (84, Shape("name", "a", "progressive")),
        (8, Shape("name", "a adjective", "progressive", place=True)),
        (5, Shape("pronoun", "own", "progressive", time="progressive")),
        (4, Shape("adjective", "the", "progressive")),
        (4, Shape("number", "plural", "progressive", place=True)),
        (4, Shape("plural", "the adjective", "progressive")),
        (4, Shape("pair", "plural", "progressive", time="progressive", place=True)),
        (4, Shape("pair", "own", "progressive")),
        (4, Shape("name", "the adjective", "progressive", manner=True)),
        (4, Shape("pronoun", "a adjective", "progressive")),
        (4, Shape("pronoun", "plural", "habit", time="habit")),
        (5, Shape("name", "plural", "habit", time="habit", place=True)),
        (4, Shape("noun", "plural", "frequent")),
        (4, Shape("name", "plural", "frequent", place=True)),
        (24, Shape("noun", "the", "state")),
        (4, Shape("pronoun", "this", "state")),
        (4, Shape("name", "the adjective", "state")),
        (3, Shape("adjective", "plural", "state")),
        (3, Shape("plural", "plural adjective", "state")),
        (5, Shape("noun", "the", "past", time="past")),
        (5, Shape("name", "a adjective", "past", time="past")),
        (5, Shape("pronoun", "own", "past", time="past", manner=True)),
        (5, Shape("pair", "number", "past", time="past")),
        (4, Shape("adjective", "a", "past", time="past")),
        (4, Shape("noun", "own adjective", "past", place=True)),
        (4, Shape("pronoun", "pair", "past", time="past")),
        (4, Shape("pronoun", "the plural", "past", time="past", manner=True)),
        (3, Shape("name", "pronoun", "past", time="past")),
        (3, Shape("noun", "name", "past", time="past")),
        (3, Shape("noun", "the", "past", time="past", clock=True)),
        (5, Shape("pronoun", "the", "perfect")),
        (4, Shape("noun", "a adjective", "perfect")),
        (4, Shape("name", "number", "perfect")),
        (5, Shape("noun", "the", "future", time="future")),
        (4, Shape("name", "own", "future", time="future", place=True)),
        (4, Shape("pair", "a adjective", "future", time="future")),
        (4, Shape("pronoun", "number", "future", time="future")),
    ]
    front_shapes: list[tuple[int, Shape]] = [
        (5, Shape("noun", "the", "past", time="past", front=True)),
        (5, Shape("name", "a adjective", "past", time="past", front=True)),
        (4, Shape("pronoun", "own", "past", time="past", front=True, place=True)),
        (4, Shape("adjective", "number", "past", time="past", front=True)),
        (4, Shape("plural", "the adjective", "past", time="past", front=True)),
        (3, Shape("pair", "the", "past", time="past", front=True, manner=True)),
        (3, Shape("name", "pronoun", "past", time="past", front=True)),
        (4, Shape("noun", "own", "future", time="future", front=True)),
        (4, Shape("pronoun", "a", "future", time="future", front=True)),
        (4, Shape("name", "the", "future", time="future", front=True, place=True)),
        (4, Shape("pronoun", "plural", "habit", time="habit", front=True, place=True)),
        (3, Shape("noun", "plural", "habit", time="habit", front=True)),
        (3, Shape("name", "the", "modal", time="modal", front=True)),
        (3, Shape("pronoun", "own", "past modal", time="past", front=True)),
    ]
    modal_shapes: list[tuple[int, Shape]] = [
        (5, Shape("pronoun", "the", "modal")),
        (5, Shape("name", "a adjective", "modal", time="modal")),
        (5, Shape("noun", "own", "modal", time="modal")),
        (4, Shape("pronoun", "plural", "modal", time="modal", place=True)),
        (4, Shape("pair", "number", "modal", time="modal")),
        (4, Shape("name", "the", "modal", place=True)),
        (4, Shape("pronoun", "the adjective", "past modal", time="past")),
        (4, Shape("noun", "a", "past modal", time="past")),
        (3, Shape("noun", "pronoun", "modal", time="modal")),
    ]
    negative_shapes: list[tuple[int, Shape]] = [
        (5, Shape("noun", "the", "progressive", negated=True)),
        (5, Shape("name", "the", "past", negated=True, time="past")),
        (5, Shape("pronoun", "own", "past", negated=True, time="past")),
        (5, Shape("pronoun", "the", "modal", negated=True)),
        (4, Shape("noun", "this", "state", negated=True)),
        (4, Shape("pronoun", "own", "future", negated=True, time="future")),
        (4, Shape("plural", "the", "past", negated=True, place=True)),
        (4, Shape("name", "pronoun", "past", negated=True)),
        (6, Shape("noun", "plural", "past", negated=True, time="past")),
        (6, Shape("pronoun", "plural", "past", negated=True, time="past")),
        (6, Shape("name", "plural", "past", negated=True)),
        (6, Shape("pronoun", "plural", "modal", negated=True)),
        (5, Shape("pair", "plural", "progressive", negated=True, time="progressive")),
        (5, Shape("noun", "plural", "state", negated=True)),
        (4, Shape("name", "a", "future", negated=True, time="future")),
    ]
    question_shapes: list[tuple[int, Shape]] = [
        (3, Shape("noun", "the", "progressive")),
        (5, Shape("pronoun", "own", "past", time="past")),
        (5, Shape("name", "a adjective", "past", time="past")),
        (4, Shape("plural", "the", "progressive", place=True)),
        (4, Shape("pronoun", "the", "modal")),
        (4, Shape("noun", "the adjective", "future", time="future")),
        (4, Shape("noun", "this", "state")),
        (4, Shape("pronoun", "plural", "state")),
        (4, Shape("name", "the", "perfect")),
        (4, Shape("pronoun", "number", "future", time="future")),
        (4, Shape("pair", "the adjective", "progressive", time="progressive")),
        (3, Shape("pronoun", "name", "past", time="past")),
        (3, Shape("adjective", "the", "progressive")),
        (3, Shape("noun", "plural", "frequent")),
    ]
    gladly_shapes: list[tuple[int, Shape]] = [
        (5, Shape("pronoun", "plural", "habit", gladly=True)),
        (5, Shape("name", "plural adjective", "habit", gladly=True)),
        (5, Shape("noun", "plural", "habit", gladly=True, place=True)),
        (4, Shape("pair", "plural", "habit", gladly=True, place=True)),
        (4, Shape("name", "plural", "habit", gladly=True, negated=True)),
    ]
    for name, weight, shapes in (
        ("statement", 2, statement_shapes),
        ("fronted_time", 4, front_shapes),
        ("modal_statement", 2, modal_shapes),
        ("negation", 3, negative_shapes),
        ("liking", 1, gladly_shapes),
    ):
        for share, shape in shapes:
            foci = fresh("main", shape, frames_for(shape))
            add(name, weight * share, foci, _statement(shape))
    for share, shape in question_shapes:
        foci = fresh("yes_no", shape, frames_for(shape))
        add("yes_no_question", 2 * share, foci, _question(shape))


# Questions with a question word ----------------------------------------------------------------


def _who(shape: Shape) -> Builder:
    english = "(WHNP (WP who))"
    who = Nominal(english, english, ("wer", "wen", "wem"), "3sg", "m", pronoun=True, name="who")

    def build(digits: Digits, frame: Frame) -> Sentence:
        clause = build_clause(digits, frame, shape, who)
        digits.close()
        return sentence(
            f"(SBARQ {who.english} (SQ {clause.english_verb_phrase()}))",
            clause.german_main(),
            {"wh_question"},
            "?",
            clause,
        )

    return build


def _object_question(kind: str, shape: Shape) -> Builder:
    """Ask for the object: what (things), who in the accusative or dative (people)."""

    def build(digits: Digits, frame: Frame) -> Sentence:
        clause = build_clause(digits, frame, with_shape(shape, object="the"), None)
        # The object that was drawn is asked for, so its digit must be the first option.
        nominal = clause.dative if kind == "dat" else clause.accusative
        if kind == "prep":
            nominal = clause.prepositional
        assert nominal is not None
        word = {"acc": "what", "dat": "who", "prep": "what"}[kind]
        german = {"acc": "was", "dat": "wem"}.get(kind, "")
        if kind == "prep":
            preposition = frame.preposition
            glue = "r" if preposition[0] in "aeiouü" else ""
            german = f"wo{glue}{preposition}"
        elif kind == "acc" and restrictions.is_person(frame.accusative[0]):
            word, german = "who", "wen"
        gap_noun = {"acc": frame.accusative, "dat": frame.dative, "prep": frame.prepositional}[kind]
        if nominal.noun is not gap_noun[0]:
            raise RejectedError
        check_asked(clause)
        digits.close()
        setattr(clause, {"acc": "accusative", "dat": "dative", "prep": "prepositional"}[kind], None)
        return sentence(
            f"(SBARQ (WHNP (WP {word})) {clause.english_question()})",
            clause.german_question(front=german),
            {"wh_question"},
            "?",
            clause,
        )

    return build


def _adverb_question(english: str, german: str, shape: Shape) -> Builder:
    def build(digits: Digits, frame: Frame) -> Sentence:
        clause = build_clause(digits, frame, shape)
        check_asked(clause)
        digits.close()
        return sentence(
            f"(SBARQ (WHADVP (WRB {english})) {clause.english_question()})",
            clause.german_question(front=german),
            {"wh_question"},
            "?",
            clause,
        )

    return build


def _register_questions() -> None:
    shapes = (
        Shape("name", "the", "progressive"),
        Shape("name", "a adjective", "past", time="past"),
        Shape("name", "number", "past", time="past"),
        Shape("name", "the adjective", "future", time="future"),
        Shape("name", "own", "perfect"),
    )
    for shape in shapes:
        add("who_question", 12, fresh("who", shape, frames_for(shape)), _who(shape))
    ask = (
        Shape("noun", "the", "progressive"),
        Shape("name", "the", "past", time="past"),
        Shape("pronoun", "the", "future", time="future"),
        Shape("noun", "the", "past", time="past"),
        Shape("pronoun", "the", "modal", time="modal"),
        Shape("adjective", "the", "past"),
    )
    for shape in ask:
        for kind in ("acc", "dat", "prep"):
            foci = [
                frame
                for frame in frames_for(shape)
                if (kind == "acc" and frame.accusative and not frame.dative)
                or (kind == "dat" and frame.dative and not frame.accusative)
                or (
                    kind == "prep"
                    and frame.prepositional
                    and not any(restrictions.is_person(noun) for noun in frame.prepositional)
                )
            ]
            weight = {"acc": 6, "dat": 1, "prep": 1}[kind]
            add(f"object_question_{kind}", weight, foci, _object_question(kind, shape))
    adverb_shapes = (
        ("why", "warum", Shape("noun", "the", "progressive")),
        ("why", "warum", Shape("pronoun", "own", "past", time="past")),
        ("why", "warum", Shape("name", "the", "past", time="past")),
        ("when", "wann", Shape("pronoun", "the", "past")),
        ("when", "wann", Shape("name", "the adjective", "future")),
        ("when", "wann", Shape("noun", "own", "future")),
    )
    for english, german, shape in adverb_shapes:
        foci = [f for f in frames_for(shape) if f.verb.english not in ("meet", "search")]
        add(f"{english}_question", 8, foci, _adverb_question(english, german, shape))
    for shape in (
        Shape("noun", "the", "past"),
        Shape("name", "a", "past", time="past"),
        Shape("pronoun", "plural", "progressive"),
    ):
        # Where somebody runs might be where to.
        foci = [f for f in frames_for(shape) if f.places and f.verb.auxiliary == "haben"]
        add("where_question", 9, foci, _adverb_question("where", "wo", shape))


# Tables shared by other constructions ------------------------------------------------------------


def table(text: str) -> list[tuple[str, ...]]:
    """The cells of a small table."""
    return [tuple(line.split("|")) for line in text.strip().splitlines()]


def matrices(text: str) -> list[tuple[list[str], list[str]]]:
    """Verbs that a clause or an infinitive follows: English VPs and German, for I, he, they.

    In the English, an underscore is where the clause goes.
    """
    return [
        ([f"(VP {finite} {rest})" for finite in penn.present(verb)], german.split("/"))
        for verb, rest, german in table(text)
    ]


AGREEMENT_INDEX = {"1sg": 0, "3sg": 1, "pl": 2}
INFINITIVE_MATRICES = matrices(lexicon_words.INFINITIVE_TABLE)


_register_statements()
_register_questions()
