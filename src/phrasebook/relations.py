"""Constructions that relate and describe: relative clauses, predicates, comparison, owners."""

from __future__ import annotations

from functools import cache

from . import clauses, lexicon_words, morphology, restrictions
from .clauses import (
    LEXICON,
    NAMES,
    Digits,
    RejectedError,
    Shape,
    build_clause,
    cached_phrase,
    frames_for,
)
from .grammar import (
    AGREEMENT_INDEX,
    Builder,
    Sentence,
    add,
    sentence,
    table,
)
from .lexicon import Adjective, Frame, Noun
from .nominals import Nominal, english_noun_phrase
from .penn import adjective_phrase, present, words
from .phrases import BE_PAST
from .restrictions import CONSUMED, FEELINGS, LADIES_WEAR, YOUNG, is_person

_DEGREES = table(lexicon_words.DEGREE_TABLE)
_PERSON_PREDICATES = table(lexicon_words.PERSON_PREDICATES)
_RELATIVE = {"relative_clause", "word_order_verb_final"}


def _with_relative(head: Nominal, case: str, clause: str) -> str:
    """A noun phrase with a relative clause (who, whom, that), from what the clause's S holds."""
    assert head.noun is not None
    word = "(WDT that)"
    if is_person(head.noun):
        word = "(WP who)" if case == "nom" else "(WP whom)"
    return f"(NP {head.english} (SBAR (WHNP {word}) (S {clause})))"


# Adjectives that stand before a noun but make no predicate in both languages.
_ATTRIBUTIVE = frozenset("Swiss wooden foreign secret".split())
# "He is French" is a noun in German: Franzose.
_NOT_OF_PEOPLE = frozenset("new German French Italian English".split())
_TOO = frozenset(
    "big small old young expensive long short heavy warm cold hot sweet sour dark loud quiet "
    "high deep fast slow strong weak narrow wide soft hard boring difficult dangerous strict "
    "full bright curious nervous".split()
)
_EXTREMELY = frozenset(
    "interesting difficult important friendly polite boring exciting dangerous practical unusual "
    "clever nervous strict useful famous elegant valuable curious hard-working comfortable "
    "expensive honest patient careful punctual loud happy angry".split()
)


@cache
def predicates(noun: Noun) -> tuple[Adjective, ...]:
    person = is_person(noun)
    return tuple(
        adjective
        for adjective in LEXICON.adjectives_of.get(noun, ())
        if adjective.english not in _ATTRIBUTIVE
        and not (person and adjective.english in _NOT_OF_PEOPLE)
        and not (noun.english in ("pupil", "student") and adjective.english == "old")
    )


def predicate_of(digits: Digits, noun: Noun) -> Adjective:
    return digits.pick(predicates(noun))


def _check_degree(degree: str, adjective: Adjective) -> None:
    """Not every quality comes in every degree."""
    if degree and not adjective.english_comparative:
        raise RejectedError
    if adjective.english in ("wonderful", "terrible", "new") and degree not in ("", "really"):
        raise RejectedError
    if degree == "too" and adjective.english not in _TOO:
        raise RejectedError
    if degree == "extremely" and adjective.english not in _EXTREMELY:
        raise RejectedError


def be_forms(nominal: Nominal, past: bool = False) -> tuple[str, str]:
    """The finite verb of being, English tree and German."""
    index = AGREEMENT_INDEX[nominal.agreement]
    if past:
        return BE_PAST[index], ("war", "war", "waren")[index]
    return present("be")[index], ("bin", "ist", "sind")[index]


def _relative_subject(shape: Shape, opening: str) -> Builder:
    """The man who is reading the newspaper ...; Do you know the man who ...?"""

    def build(digits: Digits, frame: Frame) -> Sentence:
        clause = build_clause(digits, frame, shape)
        head = clause.subject
        if head.noun is None or head.noun.word_class == "family" or not is_person(head.noun):
            raise RejectedError
        if not head.definite or head.adjective and head.adjective.english in FEELINGS:
            raise RejectedError
        if "possessive" in head.tags:
            raise RejectedError
        pronoun = morphology.relative_pronoun(head.gender, "nom")
        english = _with_relative(head, "nom", clause.english_verb_phrase())
        final = f"{pronoun} {clause.german_final(subject=False)}"
        if opening:
            digits.close()
            return sentence(
                f"(SQ (VBP do) (NP (PRP you)) (VP (VB know) {english}))",
                f"kennen Sie {head.case('acc')}, {final}",
                _RELATIVE | {"yes_no_question"},
                "?",
                clause,
            )
        said, german, gender = digits.pick(_PERSON_PREDICATES)
        if head.noun.english in YOUNG and not words(said).startswith(("lives", "speaks")):
            raise RejectedError
        if gender not in ("*", head.gender):
            raise RejectedError
        digits.close()
        return sentence(
            f"(S {english} {said})",
            f"{head.case('nom')}, {final}, {german}",
            set(_RELATIVE),
            ".",
            clause,
        )

    return build


_MAKES_NEW = frozenset("order buy sew knit build plant".split())


def _relative_object(gap: str, shape: Shape) -> Builder:
    """The book that the teacher is reading is very interesting."""

    def build(digits: Digits, frame: Frame) -> Sentence:
        clause = build_clause(digits, frame, shape)
        case: morphology.Case = "dat" if gap == "dat" else "acc"
        head = clause.dative if gap == "dat" else clause.accusative
        if gap == "prep":
            head, case = clause.prepositional, frame.preposition_case
        assert head is not None
        if head.noun is None or "possessive" in head.tags or "nosubject" in head.noun.tags:
            raise RejectedError
        adjective = predicate_of(digits, head.noun)
        if adjective.english in FEELINGS and is_person(head.noun):
            raise RejectedError
        if adjective.english == "old" and frame.verb.english in _MAKES_NEW:
            raise RejectedError
        degree = digits.pick((("", ""), ("very", "sehr ")))
        if degree[0] and adjective.english in ("wonderful", "terrible", "new"):
            raise RejectedError
        if not adjective.english_comparative and degree[0]:
            raise RejectedError
        digits.close()
        if gap == "prep" and clause.time and words(clause.time[0]).startswith("in "):
            raise RejectedError  # "that he will take part in in spring"
        pronoun = morphology.relative_pronoun(head.gender, case)
        final = clause.german_final(gap)
        if gap == "prep":
            # English strands the preposition, German takes it along.
            pronoun = f"{frame.preposition} {pronoun}"
        english_verb, german_verb = be_forms(head)
        relative = f"{clause.subject.english} {clause.english_verb_phrase(gap=gap)}"
        subject = _with_relative(head, case, relative)
        tags = set(_RELATIVE)
        result = sentence(
            f"(S {subject} (VP {english_verb} {adjective_phrase(adjective.english, degree[0])}))",
            f"{head.case('nom')}, {pronoun} {final}, {german_verb} {degree[1]}{adjective.german}",
            tags,
            ".",
            clause,
        )
        # The head is said to be so, a combination of adjective and noun like any other.
        result.nominals.append(cached_phrase(head.noun, "the", False, adjective))
        return result

    return build


def _register_relative() -> None:
    for shape in (
        Shape("noun", "the", "progressive"),
        Shape("noun", "a adjective", "past", time="past"),
        Shape("noun", "plural", "progressive", place=True),
        Shape("adjective", "the", "past"),
        Shape("noun", "own", "past"),
    ):
        foci = [f for f in frames_for(shape) if any(is_person(n) for n in f.subjects)]
        # Of the dead and the missing one does not say where they live.
        foci = [f for f in foci if f.verb.english != "meet" and f.aspect != "o"]
        add("relative_subject", 24, foci, _relative_subject(shape, ""))
        add("know_relative", 16, foci, _relative_subject(shape, "know"))
    for shape in (
        Shape("noun", "the", "progressive"),
        Shape("name", "the", "past", time="past"),
        Shape("pronoun", "the", "past"),
        Shape("name", "the", "future", time="future"),
        Shape("pronoun", "the", "modal"),
        Shape("noun", "the", "state"),
    ):
        foci = [f for f in frames_for(shape) if f.accusative and not f.dative]
        foci = [f for f in foci if not {f.verb.english, f.verb.phrase} & CONSUMED]
        add("relative_accusative", 22, foci, _relative_object("acc", shape))
        foci = [f for f in frames_for(shape) if f.dative and not f.accusative]
        foci = [f for f in foci if f.verb.english not in ("belong", "believe")]
        if foci and shape.tense != "modal":
            add("relative_dative", 10, foci, _relative_object("dat", shape))
        if shape.tense == "modal":
            continue
        foci = [f for f in frames_for(shape) if f.prepositional]
        foci = [f for f in foci if not {f.verb.english, f.verb.phrase} & CONSUMED]
        if foci:
            add("relative_preposition", 10, foci, _relative_object("prep", shape))


# Description and comparison -----------------------------------------------------------------------


def _described(digits: Digits, noun: Noun, kind: str) -> Nominal:
    if kind == "plural":
        if noun.mass or noun.word_class == "family":
            raise RejectedError
        return cached_phrase(noun, "the", True, None)
    return cached_phrase(noun, digits.pick(clauses.subject_determiners(noun)), False, None)


# What may have been so yesterday and be different today.
_PASSING = frozenset(
    "tired sick hungry thirsty angry happy sad nervous friendly dirty clean empty full "
    "cold warm hot loud quiet punctual".split()
)
# Qualities that are hardly ever measured against each other.
_NOT_COMPARED = frozenset(
    "sick wonderful terrible hungry thirsty sad happy angry full empty sour poor nervous tired "
    "ripe secret useful important patient careful dirty clean brave unusual exciting healthy "
    "friendly polite hard wild punctual deep".split()
)


def _description(kind: str, form: str, past: bool) -> Builder:
    times = clauses.times_named("past", "yesterday", "last week")

    def build(digits: Digits, noun: Noun) -> Sentence:
        subject = _described(digits, noun, kind)
        adjective = predicate_of(digits, noun)
        english_degree, german_degree = digits.pick([("", ""), *_DEGREES])
        _check_degree(english_degree, adjective)
        if form == "negated" and english_degree not in ("", "very"):
            raise RejectedError
        time = ("", "")
        if past:
            time = digits.pick((*times, ("", "")))
            if adjective.english not in _PASSING:
                raise RejectedError
        digits.close()
        is_en, is_de = be_forms(subject, past)
        negation = ("(RB not) ", "nicht ") if form == "negated" else ("", "")
        english_adjective = adjective_phrase(adjective.english, english_degree)
        german_adjective = f"{german_degree} {adjective.german}".strip()
        when = (f" {time[0]}", f"{time[1]} ") if time[0] else ("", "")
        tags = {"predicative", *subject.tags}
        if form == "negated":
            tags.add("negation_nicht")
        if form == "question":
            tags.add("yes_no_question")
            english = f"(SQ {is_en} {subject.english} {english_adjective}{when[0]})"
            german = f"{is_de} {subject.case('nom')} {when[1]}{german_adjective}"
        else:
            predicate = f"(VP {is_en} {negation[0]}{english_adjective}{when[0]})"
            english = f"(S {subject.english} {predicate})"
            german = f"{subject.case('nom')} {is_de} {when[1]}{negation[1]}{german_adjective}"
        result = sentence(english, german, tags, "?" if form == "question" else ".")
        result.nominals.append(cached_phrase(noun, "the", False, adjective))
        return result

    return build


_TASTES = frozenset("good bad strong weak".split())


def _comparative(adjective: Adjective) -> str:
    """An adjective's comparative, with -er or with more."""
    more, _, word = adjective.english_comparative.rpartition(" ")
    return f"(ADJP (RBR {more}) (JJ {word}))" if more else f"(ADJP (JJR {word}))"


def _comparison(form: str) -> Builder:
    """The dog is bigger than the cat; ... as big as ...; ... not as big as ..."""

    def build(digits: Digits, adjective: Adjective) -> Sentence:
        nouns = LEXICON.nouns_of[adjective]
        first, second = digits.pick(nouns), digits.pick(nouns)
        if {"nosubject"} & (first.tags | second.tags):
            raise RejectedError
        if first is second or first.word_class != second.word_class:
            raise RejectedError
        if (
            first.word_class in ("reading", "drink", "job", "human")
            and adjective.english in _TASTES
        ):
            raise RejectedError
        subject = cached_phrase(first, digits.pick(clauses.subject_determiners(first)), False, None)
        other = cached_phrase(second, digits.pick(clauses.subject_determiners(second)), False, None)
        if (subject.definite, "possessive" in other.tags) == (True, True) and (
            second.word_class != "family" and not is_person(second)
        ):
            raise RejectedError
        digits.close()
        is_en, is_de = be_forms(subject)
        compared = f"(ADJP (RB as) (JJ {adjective.english})) (PP (IN as) {other.english})"
        if form == "more":
            compared = f"{_comparative(adjective)} (PP (IN than) {other.english})"
            german = f"{is_de} {adjective.german_comparative} als"
        elif form == "equal":
            german = f"{is_de} so {adjective.german} wie"
        else:
            is_en = f"{is_en} (RB not)"
            german = f"{is_de} nicht so {adjective.german} wie"
        tags = {"comparative", *subject.tags, *other.tags}
        if form == "less":
            tags.add("negation_nicht")
        result = sentence(
            f"(S {subject.english} (VP {is_en} (ADJP {compared})))",
            f"{subject.case('nom')} {german} {other.case('nom')}",
            tags,
            ".",
        )
        result.nominals += [
            cached_phrase(noun, "the", False, adjective) for noun in (first, second)
        ]
        return result

    return build


# People whose own household is out of sight, and what belongs to a household.
_GUESTS = frozenset("tourist guest customer patient child boy girl pupil".split())
_HOUSEHOLD = frozenset("room furniture device vehicle".split())


def _genitive(kind: str) -> Builder:
    """The teacher's car is old: the owner stands behind in the genitive, names before."""

    def build(digits: Digits, noun: Noun) -> Sentence:
        adjective = predicate_of(digits, noun)
        english_degree, german_degree = digits.pick([("", ""), *_DEGREES[:3]])
        _check_degree(english_degree, adjective)
        if kind == "name":
            name = digits.pick(NAMES)
            if noun.english in LADIES_WEAR and name.gender == "m":
                raise RejectedError
            if name.name[-1] in "sxz":
                raise RejectedError
            owner_english = f"(NP (NNP {name.name}) (POS 's))"
            german = f"{name.name}s {noun.german}"
        else:
            owner = digits.pick(LEXICON.classes["job"] + LEXICON.classes["human"])
            if owner.english in _GUESTS and noun.word_class in _HOUSEHOLD:
                raise RejectedError
            if noun.english in LADIES_WEAR and owner.gender == "m":
                raise RejectedError
            plural = kind == "plural"
            if plural and owner.english == "boss":
                raise RejectedError
            gender: morphology.Gender = "pl" if plural else owner.gender
            article = morphology.definite_article(gender, "gen")
            word = f"(NNS {owner.english_plural})" if plural else f"(NN {owner.english})"
            mark = "'" if plural and owner.english_plural.endswith("s") else "'s"
            owner_english = f"(NP (DT the) {word} (POS {mark}))"
            own_article = morphology.definite_article(noun.gender, "nom")
            german = f"{own_article} {noun.german} {article} {owner.form(plural, 'gen')}"
        digits.close()
        predicate = f"(VP (VBZ is) {adjective_phrase(adjective.english, english_degree)})"
        result = sentence(
            f"(S {english_noun_phrase(owner_english, noun)} {predicate})",
            f"{german} ist {f'{german_degree} {adjective.german}'.strip()}",
            {"genitive", "predicative"},
            ".",
        )
        result.nominals.append(cached_phrase(noun, "the", False, adjective))
        return result

    return build


def _register_description() -> None:
    nouns = [n for n in LEXICON.nouns.values() if n in LEXICON.adjectives_of]
    nouns = [n for n in nouns if "nosubject" not in n.tags and n.word_class != "body"]
    passing = [n for n in nouns if any(a.english in _PASSING for a in predicates(n))]
    countable = [n for n in nouns if not n.mass and n.word_class != "family"]
    add("description", 30, nouns, _description("singular", "statement", False))
    add("description", 8, countable, _description("plural", "statement", False))
    add("description_past", 12, passing, _description("singular", "statement", True))
    add("description_negated", 12, nouns, _description("singular", "negated", False))
    add("description_question", 16, nouns, _description("singular", "question", False))
    add("description_question", 5, countable, _description("plural", "question", False))
    gradable = [a for a in LEXICON.adjectives if a.english_comparative]
    gradable = [a for a in gradable if a.english not in _NOT_COMPARED]
    add("comparison", 136, gradable, _comparison("more"))
    add("comparison_equal", 40, gradable, _comparison("equal"))
    add("comparison_less", 40, gradable, _comparison("less"))
    owned = [
        n
        for n in nouns
        if n.word_class != "footwear" and restrictions.ownable(n) and not is_person(n)
    ]
    add("genitive", 80, owned, _genitive("noun"))
    add("genitive_plural", 26, owned, _genitive("plural"))
    add("genitive_name", 38, owned, _genitive("name"))


_register_relative()
_register_description()
