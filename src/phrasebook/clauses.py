"""Clauses drawn from the lexicon: which subject, object, tense and adverbials go together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeVar

from . import lexicon_words, morphology, nominals, phrases
from .lexicon import Adjective, Frame, Noun, Verb, load, pairs
from .nominals import Nominal, noun_phrase
from .penn import prepositional, words
from .phrases import MODALS, PAST_MODALS, Clause
from .restrictions import (
    BY_THE_HOUR,
    DEFINITE,
    KIND_STATES,
    LASTING,
    MAJOR,
    NEVER_PLANNED,
    NOT_DENIED,
    NOT_FINISHED,
    NOT_NEVER,
    RECURRENT,
    RELATED,
    REPEATABLE,
    UNINTENDED,
    is_person,
    odd_object,
    ownable,
    too_young,
)

Option = TypeVar("Option")
Pairs = tuple[tuple[str, str], ...]


class RejectedError(Exception):
    """This index addresses no sentence (or one that a restriction rules out)."""


class Digits:
    """Reads an index as a mixed-radix number, a digit for every choice.

    The radix of a digit is the number of options at hand.  A derivation that leaves part of the
    index unread is rejected, so every derivation is reached by exactly one index.
    """

    __slots__ = ("index", "product")

    def __init__(self, index: int) -> None:
        self.index = index
        self.product = 1

    def pick(self, options: Sequence[Option]) -> Option:
        """The option named by the next digit."""
        count = len(options)
        if not count:
            raise RejectedError
        self.product *= count
        self.index, digit = divmod(self.index, count)
        return options[digit]

    def close(self) -> None:
        """Accept only an index that has been read to its end."""
        if self.index:
            raise RejectedError


@dataclass(frozen=True, slots=True)
class Shape:
    """The outline of a clause; its words are chosen by digits."""

    subject: str = "noun"
    object: str = "the"
    tense: str = "progressive"
    time: str = ""
    front: bool = False
    manner: bool = False
    place: bool = False
    clock: bool = False
    negated: bool = False
    gladly: bool = False


LEXICON = load()
TIMES: dict[str, Pairs] = {name: pairs(text) for name, text in lexicon_words.TIME_TABLES.items()}
FEMALE = tuple(nominals.person_name(n, True) for n in lexicon_words.FEMALE_NAMES.split())
MALE = tuple(nominals.person_name(n, False) for n in lexicon_words.MALE_NAMES.split())
NAMES = FEMALE + MALE
NUMBERS = tuple(f"number:{e}:{g}" for e, g in pairs(lexicon_words.NUMBERS))
# As an object of a single act, more than a handful of things is rarely natural.
SMALL_NUMBERS = NUMBERS[:4]
POSSESSIVES = ("own:my:mein", "own:our:unser", "own:your:Ihr", "own:his:sein", "own:her:ihr")

_NO_REFERENCE = frozenset({"child", "baby"})


@cache
def cached_phrase(
    noun: Noun, determiner: str, plural: bool, adjective: Adjective | None
) -> Nominal:
    """Noun phrases recur, so they are inflected once; the lexicon bounds their number."""
    return noun_phrase(noun, determiner, plural, adjective)


@cache
def subject_determiners(noun: Noun) -> tuple[str, ...]:
    """Determiners a singular subject may take."""
    if noun.word_class == "family":
        return POSSESSIVES
    if noun.english == "friend":
        return ("own:my:mein", "own:our:unser")
    if is_person(noun):
        return ("the", "own:my:mein", "own:our:unser") if noun.english in RELATED else ("the",)
    if ownable(noun):
        return ("the", "own:my:mein", "own:your:Ihr", "own:her:ihr", "this")
    return ("the", "this")


def choose_subject(digits: Digits, kind: str, nouns: Sequence[Noun]) -> Nominal:
    """A subject of the given kind."""
    if kind == "pronoun":
        return digits.pick(nominals.PRONOUNS)
    if kind == "name":
        return digits.pick(NAMES)
    if kind == "pair":
        first, second = digits.pick(NAMES), digits.pick(NAMES)
        if first.name == second.name:
            raise RejectedError
        return nominals.coordinate(first, second)
    noun = digits.pick(nouns)
    if kind == "noun":
        return cached_phrase(noun, digits.pick(subject_determiners(noun)), False, None)
    if kind == "adjective":
        adjective = digits.pick(LEXICON.adjectives_of.get(noun, ()))
        determiner = "own:my:mein" if noun.word_class == "family" else "the"
        return cached_phrase(noun, determiner, False, adjective)
    if noun.mass or noun.word_class == "family" or noun.english == "boss":
        raise RejectedError
    if kind == "plural":
        return cached_phrase(noun, "the", True, None)
    if kind == "number":
        return cached_phrase(noun, digits.pick(NUMBERS), True, None)
    raise AssertionError(kind)


def _own(subject: Nominal) -> str:
    return f"own:{subject.own_english}:{subject.own_german}"


def choose_object(
    digits: Digits, kind: str, nouns: Sequence[Noun], subject: Nominal, negated: bool
) -> Nominal:
    """An object of the given kind."""
    open_to_people = len(nouns) > 50 and is_person(nouns[0])
    if kind in ("name", "pronoun"):
        if not open_to_people:
            raise RejectedError
        chosen = digits.pick(NAMES if kind == "name" else nominals.THIRD_PRONOUNS)
        if chosen.name == subject.name or subject.agreement == "pl" and chosen.name == "they":
            raise RejectedError
        return chosen
    noun = digits.pick(nouns)
    if subject.noun is noun:
        raise RejectedError
    if kind == "pair":
        other = digits.pick(nouns)
        if other is noun or noun.word_class == "family" or other.word_class != noun.word_class:
            raise RejectedError
        return nominals.coordinate(
            cached_phrase(noun, "the", False, None), cached_phrase(other, "the", False, None)
        )
    adjective = None
    if kind.endswith(" adjective"):
        adjective = digits.pick(LEXICON.adjectives_of.get(noun, ()))
        kind = kind.removesuffix(" adjective")
    if noun.word_class == "family":
        # "Who" has no possessive of its own that would tell whose mother is meant.
        if kind != "the" or subject.name == "who" or too_young(subject, noun):
            raise RejectedError
        if is_person(noun) and subject.agreement == "3sg" and not (subject.noun or subject.name):
            raise RejectedError
        return cached_phrase(noun, _own(subject), False, adjective)
    if kind == "the":
        # "The friend" would be somebody spoken of before.
        befriended = noun.english == "friend" and subject.name != "who"
        return cached_phrase(noun, _own(subject) if befriended else "the", False, adjective)
    if kind == "own":
        if (
            not ownable(noun)
            or subject.name == "who"
            or not (subject.noun is None or is_person(subject.noun))
        ):
            raise RejectedError
        return cached_phrase(noun, _own(subject), False, adjective)
    if kind == "this":
        # Vegetables, drums and stairs: English has a plural where German has none.
        if "nosubject" in noun.tags:
            raise RejectedError
        return cached_phrase(noun, "this", False, adjective)
    if kind == "the plural":
        if noun.mass:
            raise RejectedError
        return cached_phrase(noun, "the", True, adjective)
    if kind == "a":
        if noun.mass:
            raise RejectedError
        return cached_phrase(noun, "no" if negated else "a", False, adjective)
    if kind == "plural":
        return cached_phrase(noun, "no" if negated else "bare", not noun.mass, adjective)
    if kind == "number":
        if noun.mass:
            raise RejectedError
        return cached_phrase(noun, digits.pick(SMALL_NUMBERS), True, adjective)
    raise AssertionError(kind)


@cache
def _with_names(nouns: tuple[Noun, ...]) -> tuple[Noun | Nominal, ...]:
    return nouns + NAMES + nominals.THIRD_PRONOUNS if len(nouns) > 50 else nouns


def choose_recipient(digits: Digits, nouns: tuple[Noun, ...], subject: Nominal) -> Nominal:
    """A person in the dative: somebody known, or one's own family."""
    choice = digits.pick(_with_names(nouns))
    if isinstance(choice, Nominal):
        if choice.name == subject.name or choice.agreement == subject.agreement == "pl":
            raise RejectedError
        return choice
    noun = choice
    if noun is subject.noun:
        raise RejectedError
    if (noun.word_class == "family" or noun.english == "friend") and subject.name == "who":
        raise RejectedError
    if too_young(subject, noun):
        raise RejectedError
    close = noun.word_class == "family" or noun.english == "friend"
    determiner = _own(subject) if close else "the"
    return cached_phrase(noun, determiner, False, None)


@cache
def place_phrase(english: str, german: str, noun: Noun) -> tuple[str, str]:
    """A place at rest: dative."""
    phrase = cached_phrase(noun, "the", False, None)
    bed = english == "in" and noun.english == "bed"
    return (
        prepositional(english, "(NP (NN bed))" if bed else phrase.english),
        morphology.contract(german, phrase.case("dat")),
    )


@cache
def direction_phrase(german: str, noun: Noun) -> tuple[str, str]:
    """A goal: accusative after in, an, auf; dative after zu."""
    phrase = cached_phrase(noun, "the", False, None)
    case: morphology.Case = "dat" if german == "zu" else "acc"
    return prepositional("to", phrase.english), morphology.contract(german, phrase.case(case))


def fits(frame: Frame, shape: Shape) -> bool:
    """Whether a frame can fill a shape."""
    verb, aspect, tense = frame.verb.phrase, frame.aspect, shape.tense
    if shape.subject in ("pronoun", "name", "pair") and not frame.open_subject:
        return False
    if shape.manner and not frame.manners or shape.place and not frame.places:
        return False
    if not _fits_tense(frame, tense):
        return False
    if tense in ("future", "modal", "past modal", "habit") and verb in NEVER_PLANNED:
        return False
    unkind = tense == "state" and verb not in KIND_STATES
    if shape.object.startswith("plural") and (frame.prepositional or unkind):
        return False
    recurring = tense in ("habit", "frequent")
    if recurring and frame.has_object and not shape.object.startswith("plural"):
        return False
    if recurring and frame.dative and verb not in REPEATABLE:
        return False
    if shape.gladly and (aspect != "d" or frame.dative or not frame.open_subject):
        return False
    if shape.gladly and (verb not in REPEATABLE or "adj" in shape.object and verb not in _TASTE):
        return False
    if tense == "future" and (verb in UNINTENDED or shape.negated and verb in ("eat", "drink")):
        return False
    if verb in UNINTENDED and tense in ("modal", "past modal") and not shape.negated:
        return False
    if verb == "celebrate" and shape.object.startswith("plural"):
        return False
    if verb == "collect" and not shape.object.startswith("plural"):
        return False
    if shape.negated and verb in NOT_DENIED:
        return False
    # That cooking goes on in the kitchen is news to nobody.
    if shape.place and len(frame.places) == 1 and (shape.gladly or recurring or shape.negated):
        return False
    # "At the moment" goes with what lasts.
    if shape.time == "progressive" and verb not in LASTING and not frame.place_kind:
        return False
    if verb in _BARE and shape.object not in ("the", "this"):
        return False
    if shape.negated and shape.object == "plural" and frame.dative:
        return False
    if verb == "get used to" and (shape.time or tense in ("modal", "past modal")):
        return False
    if shape.gladly and frame.accusative and is_person(frame.accusative[0]):
        return False
    if shape.time and not shape.clock and verb in BY_THE_HOUR:
        return False
    if shape.clock and frame.verb.english not in _CLOCK_VERBS:
        return False
    if shape.object.split()[0] in ("a", "number") and verb in DEFINITE:
        return False
    if shape.object in ("name", "pronoun"):
        nouns = frame.accusative or frame.prepositional
        return len(nouns) > 50 and is_person(nouns[0])
    # Frames without a noun object are told apart by other means; one object kind is enough.
    takes_noun = bool(frame.accusative or frame.prepositional)
    return takes_noun or shape.object in ("the", "plural")


# Where a certain kind of thing may be to one's liking.
_TASTE = frozenset("eat drink read bake knit".split())
# Something smells of onions, of coffee: never of one certain onion.
_BARE = frozenset({"smell of", "taste of"})


def _fits_tense(frame: Frame, tense: str) -> bool:
    verb, aspect = frame.verb.phrase, frame.aspect
    if tense == "progressive":
        return aspect == "d"
    if tense == "state":
        return aspect == "s"
    if tense == "habit":
        return verb in REPEATABLE and aspect != "s"
    if tense == "frequent":
        return verb in RECURRENT and aspect not in "so"
    if tense in ("modal", "past modal", "ability"):
        if verb == "arrive":
            return False
        return frame.open_subject and aspect not in "so"
    if tense == "future":
        return aspect not in "so"
    if tense == "perfect" and verb in NOT_FINISHED:
        return False
    return aspect != "s"


_CLOCK_VERBS = frozenset({"get", "arrive", "leave", "start", "end", "call", "wake", "land"})


_DAYS = frozenset(
    (
        "yesterday",
        "the day before yesterday",
        "on Monday",
        "on Wednesday",
        "on Friday",
        "last Sunday",
    )
)


def frames_for(shape: Shape) -> tuple[Frame, ...]:
    """All frames that can fill a shape."""
    return tuple(frame for frame in LEXICON.frames if fits(frame, shape))


def build_clause(
    digits: Digits, frame: Frame, shape: Shape, subject: Nominal | None = None
) -> Clause:
    """A clause of this shape around this verb."""
    if subject is None:
        subject = choose_subject(digits, shape.subject, frame.subjects)
    clause = Clause(subject, frame, negated=shape.negated, gladly=shape.gladly)
    clause.tags = phrases.verb_tags(frame)
    if frame.dative:
        clause.dative = choose_recipient(digits, frame.dative, subject)
    if frame.accusative:
        clause.accusative = choose_object(
            digits, shape.object, frame.accusative, subject, shape.negated and not shape.gladly
        )
        _check_object(clause, clause.accusative, shape)
    if frame.prepositional:
        clause.prepositional = choose_object(
            digits,
            "plural" if frame.verb.phrase in _BARE else shape.object,
            frame.prepositional,
            subject,
            False,
        )
        _check_object(clause, clause.prepositional, shape)
    if frame.bare:
        clause.bare = digits.pick(frame.bare)
    _set_tense(digits, clause, shape)
    if shape.clock:
        clause.clock = digits.pick(TIMES["clock"])
    if shape.manner:
        clause.manner = digits.pick(frame.manners)
        if shape.tense == "progressive" and words(clause.manner[0]).startswith("for "):
            raise RejectedError  # English would want the perfect progressive here
        clause.tags.add("adverb_order")
    if shape.place:
        clause.place = place_phrase(*digits.pick(frame.places))
        clause.tags.add("two_way_preposition")
    _tag(clause)
    return clause


def _check_object(clause: Clause, nominal: Nominal, shape: Shape) -> None:
    """Reject what is grammatical but odd."""
    if odd_object(clause.frame, clause.subject, nominal, shape.object, shape.negated):
        raise RejectedError


def times_named(group: str, *english: str) -> Pairs:
    """Some times of a group, by their English."""
    by_english = {words(time[0]): time for time in TIMES[group]}
    return tuple(by_english[name] for name in english)


# Times that are near enough for what one does any day, and all the others.
FAR = ("year", "month", "summer", "week ago", "two weeks", "in autumn", "in spring")


# Small things, pains and mists are remembered for days, not for years.
NEAR_PAST = tuple(pair for pair in TIMES["past"] if not any(word in words(pair[0]) for word in FAR))


@cache
def times_for(verb: Verb, group: str) -> Pairs:
    """The times at which an act may be dated: an everyday one only by days and weeks."""
    times = TIMES[group]
    if group not in ("past", "future"):
        return times
    if verb.english == "move":
        return tuple(pair for pair in times if any(word in words(pair[0]) for word in FAR))
    if verb.english in MAJOR or verb.phrase in MAJOR:
        return tuple(pair for pair in times if "hour" not in words(pair[0]))
    return tuple(pair for pair in times if not any(word in words(pair[0]) for word in FAR))


def _set_tense(digits: Digits, clause: Clause, shape: Shape) -> None:
    tense = shape.tense
    verb = clause.frame.verb
    if tense in ("habit", "frequent", "state"):
        clause.tense = "present"
    elif tense in ("modal", "past modal", "ability"):
        clause.tense = "modal"
        names = _modal_names(tense, shape.negated, verb.phrase in UNINTENDED)
        if verb.english == "smoke":
            names = ("wanted",) if tense == "past modal" else ("want", "may")
        clause.modal = (PAST_MODALS if tense == "past modal" else MODALS)[digits.pick(names)]
        clause.tags.add("modal")
    else:
        clause.tense = tense
    # "They cut" may be present or past: only he, a time or an auxiliary tells.
    tells = shape.time or shape.negated or clause.subject.agreement == "3sg"
    if tense == "past" and phrases.is_ambiguous_past(verb) and not tells:
        raise RejectedError
    if tense == "frequent":
        clause.adverb = digits.pick(TIMES["freq"])
    elif tense == "perfect":
        adverbs = TIMES["perfect"]
        thing = clause.accusative
        counted = thing is not None and (thing.definite or "number" in thing.tags)
        if verb.english in NOT_NEVER or verb.phrase in NOT_NEVER or counted:
            adverbs = tuple(pair for pair in adverbs if words(pair[0]) != "never")
        clause.adverb = digits.pick(adverbs)
    if shape.time:
        times = times_for(verb, shape.time)
        if shape.negated:
            times = tuple(pair for pair in times if words(pair[0]) not in ("soon", "later"))
        if shape.clock:
            times = tuple(pair for pair in times if words(pair[0]) in _DAYS)
        clause.time = digits.pick(times)
    if tense in ("past", "perfect"):
        clause.tags.add("perfect")
    elif tense == "future":
        clause.tags.add("future")


def _modal_names(tense: str, negated: bool, unintended: bool) -> tuple[str, ...]:
    if tense == "past modal":
        return ("was able to", "had to", "wanted")
    if tense == "ability":
        return ("can", "want")
    if unintended:
        return ("want", "should", "may")
    if negated:
        return ("can", "want", "should", "need not", "may")
    return ("can", "must", "want", "should", "would like", "may")


def _tag(clause: Clause) -> None:
    tags = clause.tags
    for nominal in (clause.subject, clause.accusative, clause.dative, clause.prepositional):
        if nominal:
            tags.update(nominal.tags)
    if (clause.time or clause.clock) and (clause.manner or clause.place):
        tags.add("adverb_order")
    if clause.negated:
        kein = clause.accusative is not None and clause.accusative.case("acc").startswith("kein")
        tags.add("negation_kein" if kein else "negation_nicht")


def refer(subject: Nominal) -> Nominal:
    """The pronoun that takes a person up again: the teacher ... he."""
    if subject.pronoun:
        return subject
    if subject.noun is not None and (
        subject.noun.english in _NO_REFERENCE or not is_person(subject.noun)
    ):
        raise RejectedError
    if subject.agreement == "pl":
        return nominals.THEY
    feminine = subject.own_english == "her"
    return nominals.SHE if feminine else nominals.HE


def with_shape(shape: Shape, **changes: object) -> Shape:
    """A shape that differs in some respects."""
    return replace(shape, **changes)  # type: ignore[arg-type]
