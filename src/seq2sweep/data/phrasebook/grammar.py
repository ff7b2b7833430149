"""The constructions: every kind of sentence the phrasebook knows, with its share of the output.

A construction is a name, a weight, and a list of *variants*; a variant is a function from digits
and a *focus* (the frame, noun or adjective the sentence is about) to a sentence.  Every pair of
variant and focus is a derivation space of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import clauses, lexicon_words, phrases
from .clauses import (
    Digits,
    RejectedError,
    Shape,
    build_clause,
    choose_subject,
    frames_for,
    refer,
    with_shape,
)
from .lexicon import Frame, reserved
from .phrases import Clause, Nominal


@dataclass(slots=True)
class Sentence:
    """A finished pair, its tags, and the word combinations it shows."""

    english: str
    german: str
    tags: set[str]
    clauses: list[Clause] = field(default_factory=list)
    nominals: list[Nominal] = field(default_factory=list)


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
    """Capitalise, punctuate, and collect the tags of the clauses."""
    for part in parts:
        tags |= part.tags
    return Sentence(
        english[0].upper() + english[1:] + mark,
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
            english = f"{clause.time[0]} {clause.english_statement(time=False)}"
            german = clause.german_main(front=clause.time[1], time=False)
        else:
            english, german = clause.english_statement(), clause.german_main()
        return sentence(english, german, tags, ".", clause)

    return build


def _question(shape: Shape) -> Builder:
    def build(digits: Digits, frame: Frame) -> Sentence:
        clause = build_clause(digits, frame, shape)
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
        (55, Shape("noun", "the", "progressive")),
        (35, Shape("name", "a", "progressive")),
        (5, Shape("name", "a", "progressive", place=True)),
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
        (4, Shape("name", "plural adjective", "frequent")),
        (30, Shape("noun", "the", "state")),
        (4, Shape("pronoun", "this", "state")),
        (4, Shape("name", "the adjective", "state")),
        (3, Shape("adjective", "plural", "state")),
        (3, Shape("plural", "plural adjective", "state")),
        (5, Shape("noun", "the", "past", time="past")),
        (5, Shape("name", "a adjective", "past", time="past")),
        (5, Shape("pronoun", "own", "past", time="past", manner=True)),
        (5, Shape("pair", "number", "past", time="past")),
        (4, Shape("adjective", "a", "past")),
        (4, Shape("noun", "own adjective", "past", place=True)),
        (4, Shape("pronoun", "pair", "past", time="past")),
        (4, Shape("pronoun", "the plural", "past", manner=True, place=True)),
        (3, Shape("name", "pronoun", "past", time="past")),
        (3, Shape("noun", "name", "past")),
        (3, Shape("noun", "the", "past", time="past", clock=True)),
        (5, Shape("pronoun", "the", "perfect")),
        (5, Shape("noun", "a adjective", "perfect")),
        (4, Shape("name", "number", "perfect")),
        (5, Shape("noun", "the", "future", time="future")),
        (4, Shape("name", "own", "future", time="future", place=True)),
        (4, Shape("pair", "a adjective", "future")),
        (4, Shape("pronoun", "number", "future", time="future")),
    ]
    front_shapes: list[tuple[int, Shape]] = [
        (5, Shape("noun", "the", "past", time="past", front=True)),
        (5, Shape("name", "a adjective", "past", time="past", front=True)),
        (4, Shape("pronoun", "own", "past", time="past", front=True, place=True)),
        (4, Shape("adjective", "number", "past", time="past", front=True)),
        (4, Shape("plural", "the adjective", "past", time="past", front=True)),
        (3, Shape("pair", "plural", "past", time="past", front=True, manner=True)),
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
        (5, Shape("name", "a adjective", "modal")),
        (5, Shape("noun", "own", "modal")),
        (4, Shape("pronoun", "plural", "modal", time="modal", place=True)),
        (4, Shape("pair", "number", "modal", time="modal")),
        (4, Shape("name", "the", "modal", manner=True)),
        (4, Shape("pronoun", "the adjective", "past modal", time="past")),
        (4, Shape("noun", "a", "past modal")),
        (3, Shape("noun", "pronoun", "modal", time="modal")),
    ]
    negative_shapes: list[tuple[int, Shape]] = [
        (5, Shape("noun", "the", "progressive", negated=True)),
        (5, Shape("name", "the", "past", negated=True, time="past")),
        (5, Shape("pronoun", "own", "past", negated=True)),
        (5, Shape("pronoun", "the", "modal", negated=True)),
        (4, Shape("noun", "this", "state", negated=True)),
        (4, Shape("pronoun", "own adjective", "future", negated=True)),
        (4, Shape("plural", "the", "past", negated=True, place=True)),
        (4, Shape("name", "pronoun", "past", negated=True)),
        (6, Shape("noun", "a", "past", negated=True)),
        (6, Shape("pronoun", "plural", "past", negated=True, time="past")),
        (6, Shape("name", "a adjective", "progressive", negated=True)),
        (6, Shape("pronoun", "plural", "modal", negated=True)),
        (5, Shape("pair", "plural", "progressive", negated=True, time="progressive")),
        (5, Shape("adjective", "plural", "state", negated=True)),
        (4, Shape("name", "a", "future", negated=True, time="future")),
    ]
    question_shapes: list[tuple[int, Shape]] = [
        (5, Shape("noun", "the", "progressive")),
        (5, Shape("pronoun", "own", "past", time="past")),
        (5, Shape("name", "a adjective", "past")),
        (4, Shape("plural", "the", "progressive", place=True)),
        (4, Shape("pronoun", "the", "modal")),
        (4, Shape("noun", "a", "modal")),
        (4, Shape("noun", "this", "state")),
        (4, Shape("pronoun", "plural", "state")),
        (4, Shape("name", "the", "perfect")),
        (4, Shape("pronoun", "number", "future", time="future")),
        (4, Shape("pair", "plural adjective", "progressive", time="progressive")),
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
        ("fronted_time", 3, front_shapes),
        ("modal_statement", 2, modal_shapes),
        ("negation", 2, negative_shapes),
        ("liking", 2, gladly_shapes),
    ):
        for share, shape in shapes:
            foci = fresh("main", shape, frames_for(shape))
            add(name, weight * share, foci, _statement(shape))
    for share, shape in question_shapes:
        foci = fresh("yes_no", shape, frames_for(shape))
        add("yes_no_question", 2 * share, foci, _question(shape))


# Questions with a question word ----------------------------------------------------------------


def _who(shape: Shape) -> Builder:
    who = Nominal("who", "who", ("wer", "wen", "wem"), "3sg", "m", pronoun=True)

    def build(digits: Digits, frame: Frame) -> Sentence:
        clause = build_clause(digits, frame, shape, who)
        digits.close()
        return sentence(
            clause.english_statement(), clause.german_main(), {"wh_question"}, "?", clause
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
        elif kind == "acc" and clauses.is_person(frame.accusative[0]):
            word, german = "who", "wen"
        gap_noun = {"acc": frame.accusative, "dat": frame.dative, "prep": frame.prepositional}[kind]
        if nominal.noun is not gap_noun[0]:
            raise RejectedError
        digits.close()
        setattr(clause, {"acc": "accusative", "dat": "dative", "prep": "prepositional"}[kind], None)
        return sentence(
            f"{word} {clause.english_question()}",
            clause.german_question(front=german),
            {"wh_question"},
            "?",
            clause,
        )

    return build


def _adverb_question(english: str, german: str, shape: Shape) -> Builder:
    def build(digits: Digits, frame: Frame) -> Sentence:
        clause = build_clause(digits, frame, shape)
        digits.close()
        return sentence(
            f"{english} {clause.english_question()}",
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
        Shape("name", "number", "past"),
        Shape("name", "the", "future", time="future"),
        Shape("name", "own", "perfect"),
    )
    for shape in shapes:
        add("who_question", 8, fresh("who", shape, frames_for(shape)), _who(shape))
    ask = (
        Shape("noun", "the", "progressive"),
        Shape("name", "the", "past", time="past"),
        Shape("pronoun", "the", "future", time="future"),
        Shape("noun", "the", "past"),
        Shape("pronoun", "the", "modal"),
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
                    and not any(clauses.is_person(noun) for noun in frame.prepositional)
                )
            ]
            weight = {"acc": 6, "dat": 1, "prep": 1}[kind]
            add(f"object_question_{kind}", weight, foci, _object_question(kind, shape))
    adverb_shapes = (
        ("why", "warum", Shape("noun", "the", "progressive")),
        ("why", "warum", Shape("pronoun", "own", "past", time="past")),
        ("why", "warum", Shape("name", "the", "past modal")),
        ("when", "wann", Shape("pronoun", "the", "past")),
        ("when", "wann", Shape("name", "the adjective", "future")),
        ("when", "wann", Shape("noun", "own", "past modal")),
    )
    for english, german, shape in adverb_shapes:
        foci = [f for f in frames_for(shape) if f.verb.english not in ("meet", "search")]
        add(f"{english}_question", 8, foci, _adverb_question(english, german, shape))
    for shape in (
        Shape("noun", "the", "past"),
        Shape("name", "a", "past", time="past"),
        Shape("pronoun", "plural", "progressive"),
    ):
        foci = [f for f in frames_for(shape) if f.places]
        add("where_question", 6, foci, _adverb_question("where", "wo", shape))


# Subordinate clauses ---------------------------------------------------------------------------


def by_person(cell: str) -> tuple[str, str, str]:
    """Forms for I / he / they."""
    first, second, third = cell.split("/")
    return first, second, third


AGREEMENT_INDEX = {"1sg": 0, "3sg": 1, "pl": 2}
_THAT = [
    (by_person(e), by_person(g))
    for e, g in (r.split("|") for r in lexicon_words.THAT_TABLE.strip().splitlines())
]
_WHETHER = [
    (by_person(e), by_person(g))
    for e, g in (r.split("|") for r in lexicon_words.WHETHER_TABLE.strip().splitlines())
]
INFINITIVE_MATRICES = [
    (by_person(e), by_person(g))
    for e, g in (r.split("|") for r in lexicon_words.INFINITIVE_TABLE.strip().splitlines())
]


def table(text: str) -> list[tuple[str, ...]]:
    """The cells of a small table."""
    return [tuple(line.split("|")) for line in text.strip().splitlines()]


_VERB_FORMS = {
    "be": ("am", "is", "are"),
    "have": ("have", "has", "have"),
    "sein": ("bin", "ist", "sind"),
    "haben": ("habe", "hat", "haben"),
}


def _state(subject: Nominal, cells: tuple[str, ...]) -> tuple[str, str, str]:
    """A state of the subject: English clause, German verb-final clause, German finite verb."""
    english_verb, english_rest, german_verb, german_rest = cells
    index = AGREEMENT_INDEX[subject.agreement]
    english = f"{subject.english} {_VERB_FORMS[english_verb][index]} {english_rest}"
    finite = _VERB_FORMS[german_verb][index]
    return english, f"{subject.case('nom')} {german_rest} {finite}", finite


def _matrix(digits: Digits, verbs: Sequence[tuple[Any, Any]]) -> tuple[Nominal, str, str]:
    subject = digits.pick(phrases.PRONOUNS + clauses.NAMES)
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
        if matrix.name == clause.subject.name:
            raise RejectedError
        digits.close()
        return sentence(
            f"{english} {conjunction[0]} {clause.english_statement()}",
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
            f"{english} that {clause.english_statement()}",
            f"{german}, dass {clause.german_final()}",
            {"subordinate_clause", "word_order_verb_final"},
            ".",
            clause,
        )

    return build


def _do_you_know(shape: Shape) -> Builder:
    def build(digits: Digits, frame: Frame) -> Sentence:
        clause = build_clause(digits, frame, shape)
        digits.close()
        return sentence(
            f"do you know whether {clause.english_statement()}",
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
            f"{clause.english_statement()} {english_word} {english}",
            f"{clause.german_main()}, {german_word} {final}",
            set(_FINAL),
            ".",
            clause,
        )

    return build


def _fronted_state(conjunction: tuple[str, str], shape: Shape, states: Any) -> Builder:
    """A subordinate clause in first place: the main clause begins with its verb."""

    def build(digits: Digits, frame: Frame) -> Sentence:
        person = choose_subject(digits, shape.subject, frame.subjects)
        clause = build_clause(digits, frame, shape, refer(person))
        english, final, _ = _state(person, digits.pick(states))
        digits.close()
        return sentence(
            f"{conjunction[0]} {english}, {clause.english_statement()}",
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
        digits.close()
        return sentence(
            f"although {english}, {clause.english_statement()}",
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
        digits.close()
        return sentence(
            f"{clause.english_statement()} if {english}",
            f"{clause.german_main()}, wenn {final}",
            _FINAL | {"weather"},
            ".",
            clause,
        )

    return build


def _event(kind: str, shape: Shape) -> Builder:
    """Before and after: an event that orders the day, with the same subject."""

    def build(digits: Digits, frame: Frame) -> Sentence:
        person = choose_subject(digits, shape.subject, frame.subjects)
        clause = build_clause(digits, frame, shape, refer(person))
        past, pluperfect, german, auxiliary = digits.pick(_EVENTS)
        digits.close()
        index = AGREEMENT_INDEX[person.agreement]
        subject = person.case("nom")
        if german.startswith("sich "):
            german = f"{person.reflexive[0]} {german.removeprefix('sich ')}"
        if kind == "before":
            present = _VERB_FORMS[auxiliary][index]
            english = f"before {person.english} {past}, {clause.english_statement()}"
            fronted = f"bevor {subject} {german} {present}"
        else:
            had = {"sein": ("war", "war", "waren"), "haben": ("hatte", "hatte", "hatten")}
            english = f"after {person.english} had {pluperfect}, {clause.english_statement()}"
            fronted = f"nachdem {subject} {german} {had[auxiliary][index]}"
        return sentence(
            english,
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
        name = other.english
        main = f"{finite} {name} {rest}".strip()
        return sentence(
            f"while {clause.english_statement()}, {name} {english}",
            f"während {clause.german_final()}, {main}",
            _FINAL | {"word_order_v2_inversion"},
            ".",
            clause,
        )

    return build


# What nobody does on purpose needs no reason for not being done.
_NO_DUTY = frozenset(
    "forget look lose break miss disturb dream think get fall freeze sneeze cry meet hear see "
    "steal win find wake cover".split()
)


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
        add("impersonal_that", 3, foci, _impersonal_that(shape))
        add("that_clause", 9, foci, _embedded(("that", "dass"), _THAT, shape))
        if shape.negated:
            continue
        add("whether_clause", 5, foci, _embedded(("whether", "ob"), _WHETHER, shape))
        add("do_you_know", 3, foci, _do_you_know(shape))
    open_shapes = (
        Shape("noun", "the", "modal", negated=True),
        Shape("name", "own", "modal", negated=True),
        Shape("pronoun", "plural", "modal", negated=True),
    )
    for shape in open_shapes:
        foci = fresh("because", shape, frames_for(shape))
        foci = [f for f in foci if f.verb.english not in _NO_DUTY]
        add("because_clause", 8, foci, _because("because", shape))
        fronted = _fronted_state(("because", "weil"), shape, _STATES)
        add("fronted_because", 6, foci, fronted)
    although = (
        Shape("noun", "the", "progressive"),
        Shape("name", "a", "progressive"),
        Shape("pronoun", "plural", "progressive", place=True),
    )
    for shape in although:
        foci = [f for f in frames_for(shape) if f.open_subject and f.aspect == "d"]
        add("although_clause", 6, foci, _because("although", shape))
        add("although_weather", 3, foci, _weather_reason(shape))
    conditions = (
        Shape("noun", "the", "future"),
        Shape("name", "a adjective", "future"),
        Shape("pronoun", "number", "future"),
    )
    for shape in conditions:
        foci = [f for f in frames_for(shape) if f.open_subject and f.aspect == "d"]
        foci = [f for f in foci if f.verb.english not in ("dream", "think", "get", "fall")]
        add("if_clause", 6, foci, _fronted_state(("if", "wenn"), shape, _CONDITIONS))
        outside = [f for f in foci if any(p[2].word_class == "outdoor" for p in f.places)]
        add("if_weather", 3, outside, _weather_condition(shape))
    past = (
        Shape("noun", "the", "past"),
        Shape("name", "own", "past"),
        Shape("pronoun", "a", "past"),
    )
    for shape in past:
        foci = [f for f in frames_for(shape) if f.open_subject and f.aspect == "d"]
        add("before_clause", 5, foci, _event("before", shape))
        add("after_clause", 5, foci, _event("after", shape))
    for shape in (Shape("noun", "the", "progressive"), Shape("name", "a adjective", "progressive")):
        foci = [f for f in frames_for(shape) if f.open_subject]
        add("while_clause", 7, foci, _while(shape))


_register_statements()
_register_questions()
_register_subordinate()
