"""Constructions with subordinate clauses: the verb goes to the end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from . import clauses, lexicon_words, nominals
from .clauses import (
    Digits,
    RejectedError,
    Shape,
    build_clause,
    choose_subject,
    frames_for,
    refer,
)
from .grammar import AGREEMENT_INDEX, Builder, Sentence, add, fresh, matrices, sentence, table
from .lexicon import Frame, Noun
from .nominals import Nominal
from .penn import present, subordinate, words
from .restrictions import LASTING, UNDERTAKINGS

_THAT = matrices(lexicon_words.THAT_TABLE)
_WHETHER = matrices(lexicon_words.WHETHER_TABLE)
_VERB_FORMS = {
    "sein": ("bin", "ist", "sind"),
    "haben": ("habe", "hat", "haben"),
}


def _state(subject: Nominal, cells: tuple[str, ...]) -> tuple[str, str, str]:
    """A state of the subject: English clause, German verb-final clause, German finite verb."""
    english_verb, english_rest, german_verb, german_rest = cells
    index = AGREEMENT_INDEX[subject.agreement]
    english = f"{subject.english} (VP {present(english_verb)[index]} {english_rest})"
    finite = _VERB_FORMS[german_verb][index]
    return english, f"{subject.case('nom')} {german_rest} {finite}", finite


def _matrix(digits: Digits, verbs: Sequence[Any]) -> tuple[Nominal, str, str]:
    subject = digits.pick(nominals.PRONOUNS + clauses.NAMES)
    english, german = digits.pick(verbs)
    index = AGREEMENT_INDEX[subject.agreement]
    return (
        subject,
        f"{subject.english} {english[index]}",
        f"{subject.case('nom')} {german[index]}",
    )


def _embedded(conjunction: tuple[str, str], verbs: Sequence[Any], shape: Shape) -> Builder:
    def build(digits: Digits, frame: Frame) -> Sentence:
        clause = build_clause(digits, frame, shape)
        matrix, english, german = _matrix(digits, verbs)
        # Nobody asks whether he himself does something.
        self_doubt = conjunction[0] == "whether" and clause.subject in (nominals.HE, nominals.SHE)
        if matrix.name == clause.subject.name or self_doubt:
            raise RejectedError
        digits.close()
        return sentence(
            f"(S {english.replace('_', subordinate(conjunction[0], clause.english_statement()))})",
            f"{german}, {conjunction[1]} {clause.german_final()}",
            {"subordinate_clause", "word_order_verb_final"},
            ".",
            clause,
        )

    return build


def _impersonal_that(shape: Shape) -> Builder:
    matrices = table(lexicon_words.THAT_IMPERSONAL)

    def build(digits: Digits, frame: Frame) -> Sentence:
        clause = build_clause(digits, frame, shape)
        english, german = digits.pick(matrices)
        digits.close()
        return sentence(
            f"(S {english.replace('_', subordinate('that', clause.english_statement()))})",
            f"{german}, dass {clause.german_final()}",
            {"subordinate_clause", "word_order_verb_final"},
            ".",
            clause,
        )

    return build


def _do_you_know(shape: Shape) -> Builder:
    def build(digits: Digits, frame: Frame) -> Sentence:
        clause = build_clause(digits, frame, shape)
        if clause.subject.agreement == "1sg" or clause.subject.name in ("you", "we"):
            raise RejectedError
        digits.close()
        whether = subordinate("whether", clause.english_statement())
        return sentence(
            f"(SQ (VBP do) (NP (PRP you)) (VP (VB know) {whether}))",
            f"wissen Sie, ob {clause.german_final()}",
            {"subordinate_clause", "word_order_verb_final", "yes_no_question"},
            "?",
            clause,
        )

    return build


_STATES = table(lexicon_words.STATE_TABLE)
_CONDITIONS = table(lexicon_words.CONDITION_TABLE)
_WEATHER = table(lexicon_words.WEATHER_CLAUSES)
_WEATHER_CONDITIONS = table(lexicon_words.WEATHER_CONDITIONS)
_EVENTS = table(lexicon_words.EVENT_TABLE)
_MEANWHILE = table(lexicon_words.MEANWHILE_TABLE)
_FINAL = {"subordinate_clause", "word_order_verb_final"}


def _because(kind: str, shape: Shape) -> Builder:
    """A main clause with a state as its reason (weil) or in spite of it (obwohl)."""
    english_word, german_word = {
        "because": ("because", "weil"),
        "although": ("although", "obwohl"),
    }[kind]

    def build(digits: Digits, frame: Frame) -> Sentence:
        clause = build_clause(digits, frame, shape)
        english, final, _ = _state(refer(clause.subject), digits.pick(_STATES))
        digits.close()
        return sentence(
            f"(S {clause.english_statement(reason=subordinate(english_word, english))})",
            f"{clause.german_main()}, {german_word} {final}",
            set(_FINAL),
            ".",
            clause,
        )

    return build


def _fronted(conjunction: str, clause: str, main: str) -> str:
    """The tree of a sentence whose subordinate clause comes first."""
    return f"(S {subordinate(conjunction, clause)} (, ,) {main})"


def _fronted_state(conjunction: tuple[str, str], shape: Shape, states: Any) -> Builder:
    """A subordinate clause in first place: the main clause begins with its verb."""

    def build(digits: Digits, frame: Frame) -> Sentence:
        person = choose_subject(digits, shape.subject, frame.subjects)
        clause = build_clause(digits, frame, shape, refer(person))
        english, final, _ = _state(person, digits.pick(states))
        digits.close()
        return sentence(
            _fronted(conjunction[0], english, clause.english_statement()),
            f"{conjunction[1]} {final}, {clause.german_question()}",
            _FINAL | {"word_order_v2_inversion"} | set(person.tags),
            ".",
            clause,
        )

    return build


def _weather_reason(shape: Shape) -> Builder:
    def build(digits: Digits, frame: Frame) -> Sentence:
        clause = build_clause(digits, frame, shape)
        english, _, final = digits.pick(_WEATHER)
        clause.place = clauses.place_phrase(*digits.pick(outdoor_places(frame)))
        clause.tags.add("two_way_preposition")
        digits.close()
        return sentence(
            _fronted("although", english, clause.english_statement()),
            f"obwohl {final}, {clause.german_question()}",
            _FINAL | {"word_order_v2_inversion", "weather"},
            ".",
            clause,
        )

    return build


def _weather_condition(shape: Shape) -> Builder:
    def build(digits: Digits, frame: Frame) -> Sentence:
        clause = build_clause(digits, frame, shape)
        english, final = digits.pick(_WEATHER_CONDITIONS)
        clause.place = clauses.place_phrase(*digits.pick(outdoor_places(frame)))
        clause.tags.add("two_way_preposition")
        digits.close()
        return sentence(
            f"(S {clause.english_statement(reason=subordinate('if', english))})",
            f"{clause.german_main()}, wenn {final}",
            _FINAL | {"weather"},
            ".",
            clause,
        )

    return build


_ARRIVING = frozenset({"came home", "got dressed"})
_LEAVING = frozenset({"went to bed", "left the house", "went to work", "went for a walk"})


def _event(kind: str, shape: Shape) -> Builder:
    """Before and after: an event that orders the day, with the same subject."""
    # One is busy before one leaves, and after one has come back.
    unfit = _ARRIVING if kind == "before" else _LEAVING
    events = tuple(cells for cells in _EVENTS if words(cells[0]) not in unfit)

    def build(digits: Digits, frame: Frame) -> Sentence:
        person = choose_subject(digits, shape.subject, frame.subjects)
        clause = build_clause(digits, frame, shape, refer(person))
        past, pluperfect, german, auxiliary = digits.pick(events)
        digits.close()
        index = AGREEMENT_INDEX[person.agreement]
        subject = person.case("nom")
        if german.startswith("sich "):
            german, reflexive = german.removeprefix("sich "), person.reflexive[0]
            pronoun_first = person.pronoun
            subject = f"{subject} {reflexive}" if pronoun_first else f"{reflexive} {subject}"
        if kind == "before":
            present = _VERB_FORMS[auxiliary][index]
            english = f"{person.english} {past}"
            fronted = f"bevor {subject} {german} {present}"
        else:
            had = {"sein": ("war", "war", "waren"), "haben": ("hatte", "hatte", "hatten")}
            english = f"{person.english} (VP (VBD had) {pluperfect})"
            fronted = f"nachdem {subject} {german} {had[auxiliary][index]}"
        return sentence(
            _fronted(kind, english, clause.english_statement()),
            f"{fronted}, {clause.german_question()}",
            _FINAL | {"word_order_v2_inversion"} | set(person.tags),
            ".",
            clause,
        )

    return build


def _while(shape: Shape) -> Builder:
    def build(digits: Digits, frame: Frame) -> Sentence:
        clause = build_clause(digits, frame, shape)
        other = digits.pick(clauses.NAMES)
        english, german = digits.pick(_MEANWHILE)
        if other.name in clause.subject.name:
            raise RejectedError
        digits.close()
        finite, _, rest = german.partition(" ")
        main = f"{finite} {other.case('nom')} {rest}".strip()
        return sentence(
            _fronted("while", clause.english_statement(), f"{other.english} {english}"),
            f"während {clause.german_final()}, {main}",
            _FINAL | {"word_order_v2_inversion"},
            ".",
            clause,
        )

    return build


def undertakings(foci: Iterable[Frame]) -> list[Frame]:
    """Frames of what takes time and strength, so that reasons and conditions suit them."""
    return [f for f in foci if f.open_subject and f.verb.phrase in UNDERTAKINGS]


# Outdoors or not, the weather hardly matters.
_ANY_WEATHER = frozenset({"talk to", "sing", "learn", "write", "translate"})


def outdoor_places(frame: Frame) -> list[tuple[str, str, Noun]]:
    """The places of a frame that are in the open."""
    return [place for place in frame.places if place[2].word_class == "outdoor"]


def _register_subordinate() -> None:
    embedded = (
        Shape("noun", "the", "progressive"),
        Shape("name", "a adjective", "past", time="past"),
        Shape("pronoun", "own", "past"),
        Shape("noun", "the", "modal"),
        Shape("name", "number", "future", time="future"),
        Shape("plural", "the adjective", "progressive"),
        Shape("pronoun", "the", "state"),
        Shape("noun", "a", "past", place=True),
        Shape("name", "plural", "habit", time="habit"),
        Shape("noun", "the", "past", negated=True),
        Shape("adjective", "the", "past"),
    )
    for shape in embedded:
        foci = fresh("embedded", shape, frames_for(shape))
        # "It is strange that he should go" says something else.
        if shape.tense != "modal":
            add("impersonal_that", 13, foci, _impersonal_that(shape))
        add("that_clause", 38, foci, _embedded(("that", "dass"), _THAT, shape))
        if shape.negated:
            continue
        add("whether_clause", 21, foci, _embedded(("whether", "ob"), _WHETHER, shape))
        add("do_you_know", 13, foci, _do_you_know(shape))
    open_shapes = (
        Shape("noun", "the", "ability", negated=True),
        Shape("name", "own", "ability", negated=True),
        Shape("pronoun", "the", "ability", negated=True),
    )
    for shape in open_shapes:
        foci = fresh("because", shape, frames_for(shape))
        foci = undertakings(foci)
        add("because_clause", 34, foci, _because("because", shape))
        fronted = _fronted_state(("because", "weil"), shape, _STATES)
        add("fronted_because", 25, foci, fronted)
    although = (
        Shape("noun", "the", "progressive"),
        Shape("name", "a", "progressive"),
        Shape("pronoun", "plural", "progressive"),
    )
    for shape in although:
        foci = undertakings(frames_for(shape))
        add("although_clause", 25, foci, _because("although", shape))
        outside = [f for f in foci if outdoor_places(f) and f.verb.phrase not in _ANY_WEATHER]
        add("although_weather", 17, fresh("although", shape, outside), _weather_reason(shape))
    conditions = (
        Shape("noun", "the", "future"),
        Shape("name", "a adjective", "future"),
        Shape("pronoun", "number", "future"),
    )
    for shape in conditions:
        foci = undertakings(frames_for(shape))
        add("if_clause", 25, foci, _fronted_state(("if", "wenn"), shape, _CONDITIONS))
        outside = [f for f in foci if outdoor_places(f) and f.verb.phrase not in _ANY_WEATHER]
        add("if_weather", 13, outside, _weather_condition(shape))
    past = (
        Shape("noun", "the", "past"),
        Shape("name", "own", "past"),
        Shape("pronoun", "a", "past"),
    )
    for shape in past:
        foci = undertakings(frames_for(shape))
        add("before_clause", 21, foci, _event("before", shape))
        add("after_clause", 21, foci, _event("after", shape))
    for shape in (Shape("noun", "the", "progressive"), Shape("name", "a adjective", "progressive")):
        foci = [f for f in frames_for(shape) if f.open_subject and f.verb.phrase in LASTING]
        add("while_clause", 28, foci, _while(shape))


_register_subordinate()
