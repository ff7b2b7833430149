"""Clauses drawn from the lexicon: which subject, object, tense and adverbials go together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeVar

from . import lexicon_words, morphology, phrases
from .lexicon import Adjective, Frame, Noun, load, pairs
from .phrases import MODALS, PAST_MODALS, Clause, Nominal, noun_phrase

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
FEMALE = tuple(phrases.person_name(n, True) for n in lexicon_words.FEMALE_NAMES.split())
MALE = tuple(phrases.person_name(n, False) for n in lexicon_words.MALE_NAMES.split())
NAMES = FEMALE + MALE
NUMBERS = tuple(f"number:{e}:{g}" for e, g in pairs(lexicon_words.NUMBERS))
# As an object of a single act, more than a handful of things is rarely natural.
SMALL_NUMBERS = NUMBERS[:4]
POSSESSIVES = ("own:my:mein", "own:our:unser", "own:your:Ihr", "own:his:sein", "own:her:ihr")

# People one has, so to speak, next to one's family.
_RELATED = frozenset(
    "boss colleague neighbour friend doctor dentist teacher hairdresser lawyer guest".split()
)
_OWNABLE_CLASSES = frozenset(
    "clothing footwear device portable container toy vehicle instrument pet furniture room".split()
)
_OWNABLE = frozenset(
    "house garden book letter diary novel newspaper plan mistake question answer coffee tea soup "
    "photo secret dream problem opinion task cake sandwich".split()
) - {"stairs"}
_NOT_OWNABLE = frozenset({"bus", "train", "tram", "ship", "plane", "stairs", "taxi"})

# Habits one may have daily, with a plural or uncountable object where there is one.
REPEATABLE = frozenset(
    "sleep work laugh dance sing swim run hike jog cycle rest cook bake read write eat drink feed "
    "clean play learn iron water wash help visit call study ride draw peel".split()
)
# Acts that recur, though not by the day.
RECURRENT = REPEATABLE | frozenset(
    "buy sell break forget lose repair hear see miss photograph invite translate order borrow find "
    "rent sew knit paint disturb win get arrive wake bark sneeze smile collect catch chase".split()
)
# States whose object may be a whole kind of things.
_KIND_STATES = frozenset("need collect like love hate".split())
# What is done on purpose is not done with things one dislikes.
_INTENDED = frozenset(
    "organise recommend order buy cook bake rent promise build plant borrow use draw offer "
    "bring give show prepare knit".split()
)
_UNPLEASANT = frozenset(
    "bad boring terrible wrong stupid dirty broken empty sour lazy dangerous".split()
)
_UNINTENDED = frozenset("break lose forget miss freeze sneeze cry get".split())
_WORN = frozenset("wear put take try".split())
_LADIES_WEAR = frozenset("dress skirt blouse".split())
# Events of which one cannot sensibly say that they have never happened.
_EVENTUALLY = frozenset(
    "die disappear start end take burn grow bloom land leave wake arrive stop".split()
)
_NO_REFERENCE = frozenset({"child", "baby"})


def ownable(noun: Noun) -> bool:
    """Whether "my ..." is a natural thing to say."""
    if noun.english in _NOT_OWNABLE:
        return False
    return (
        noun.word_class in _OWNABLE_CLASSES or noun.english in _OWNABLE or noun.english in _RELATED
    )


def is_person(noun: Noun) -> bool:
    """Whether the noun means a human being."""
    return noun.word_class in ("family", "job", "human", "apart")


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
    if is_person(noun):
        return ("the", "own:my:mein", "own:our:unser") if noun.english in _RELATED else ("the",)
    if ownable(noun):
        return ("the", "own:my:mein", "own:your:Ihr", "own:her:ihr", "this")
    return ("the", "this")


def choose_subject(digits: Digits, kind: str, nouns: Sequence[Noun]) -> Nominal:
    """A subject of the given kind."""
    if kind == "pronoun":
        return digits.pick(phrases.PRONOUNS)
    if kind == "name":
        return digits.pick(NAMES)
    if kind == "pair":
        first, second = digits.pick(NAMES), digits.pick(NAMES)
        if first.name == second.name:
            raise RejectedError
        return phrases.coordinate(first, second)
    noun = digits.pick(nouns)
    if kind == "noun":
        return cached_phrase(noun, digits.pick(subject_determiners(noun)), False, None)
    if kind == "adjective":
        adjective = digits.pick(LEXICON.adjectives_of.get(noun, ()))
        determiner = "own:my:mein" if noun.word_class == "family" else digits.pick(("the", "a"))
        return cached_phrase(noun, determiner, False, adjective)
    if noun.mass or noun.word_class == "family":
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
        chosen = digits.pick(NAMES if kind == "name" else phrases.THIRD_PRONOUNS)
        if chosen.name == subject.name or subject.agreement == "pl" and chosen.english == "they":
            raise RejectedError
        return chosen
    noun = digits.pick(nouns)
    if subject.noun is noun:
        raise RejectedError
    if kind == "pair":
        other = digits.pick(nouns)
        if other is noun or noun.word_class == "family" or other.word_class == "family":
            raise RejectedError
        return phrases.coordinate(
            cached_phrase(noun, "the", False, None), cached_phrase(other, "the", False, None)
        )
    adjective = None
    if kind.endswith(" adjective"):
        adjective = digits.pick(LEXICON.adjectives_of.get(noun, ()))
        kind = kind.removesuffix(" adjective")
    if noun.word_class == "family":
        if kind != "the":
            raise RejectedError
        if is_person(noun) and subject.agreement == "3sg" and not (subject.noun or subject.name):
            raise RejectedError
        return cached_phrase(noun, _own(subject), False, adjective)
    if kind == "the":
        return cached_phrase(noun, "the", False, adjective)
    if kind == "own":
        if not ownable(noun) or not (subject.noun is None or is_person(subject.noun)):
            raise RejectedError
        return cached_phrase(noun, _own(subject), False, adjective)
    if kind == "this":
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
    return nouns + NAMES + phrases.THIRD_PRONOUNS if len(nouns) > 50 else nouns


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
    determiner = _own(subject) if noun.word_class == "family" else "the"
    return cached_phrase(noun, determiner, False, None)


@cache
def place_phrase(english: str, german: str, noun: Noun) -> tuple[str, str]:
    """A place at rest: dative."""
    phrase = cached_phrase(noun, "the", False, None)
    bed = english == "in" and noun.english == "bed"
    return (
        "in bed" if bed else f"{english} {phrase.english}",
        morphology.contract(german, phrase.case("dat")),
    )


@cache
def direction_phrase(german: str, noun: Noun) -> tuple[str, str]:
    """A goal: accusative after in, an, auf; dative after zu."""
    phrase = cached_phrase(noun, "the", False, None)
    case: morphology.Case = "dat" if german == "zu" else "acc"
    return f"to {phrase.english}", morphology.contract(german, phrase.case(case))


def fits(frame: Frame, shape: Shape) -> bool:
    """Whether a frame can fill a shape."""
    verb, aspect = frame.verb, frame.aspect
    if shape.subject in ("pronoun", "name", "pair") and not frame.open_subject:
        return False
    if shape.manner and not frame.manners or shape.place and not frame.places:
        return False
    tense = shape.tense
    if tense == "progressive" and aspect != "d":
        return False
    if tense == "state" and aspect != "s":
        return False
    if tense == "habit" and (verb.english not in REPEATABLE or aspect == "s"):
        return False
    if tense in ("habit", "frequent", "future", "modal", "past modal") and aspect in "so":
        return False
    if tense in ("modal", "past modal") and not frame.open_subject:
        return False
    if tense in ("past", "perfect") and aspect == "s":
        return False
    if tense == "frequent" and verb.english not in RECURRENT:
        return False
    unkind = tense == "state" and verb.english not in _KIND_STATES
    if shape.object.startswith("plural") and (frame.prepositional or unkind):
        return False
    if (
        tense in ("habit", "frequent")
        and frame.has_object
        and not shape.object.startswith("plural")
    ):
        return False
    if tense in ("habit", "frequent") and frame.dative and verb.english not in REPEATABLE:
        return False
    if shape.gladly and (aspect != "d" or frame.dative or not frame.open_subject):
        return False
    if shape.gladly and verb.english not in REPEATABLE:
        return False
    if tense in ("future", "modal") and verb.english in _UNINTENDED and not shape.negated:
        return False
    if verb.english == "celebrate" and shape.object.startswith("plural"):
        return False
    if verb.english == "collect" and not shape.object.startswith("plural"):
        return False
    if shape.gladly and frame.accusative and is_person(frame.accusative[0]):
        return False
    if shape.clock and verb.english not in _CLOCK_VERBS:
        return False
    takes_noun = bool(frame.accusative or frame.prepositional)
    if shape.object in ("name", "pronoun"):
        nouns = frame.accusative or frame.prepositional
        return len(nouns) > 50 and is_person(nouns[0])
    # Frames without a noun object are told apart by other means; one object kind is enough.
    return takes_noun or shape.object in ("the", "plural")


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
            digits, shape.object, frame.accusative, subject, shape.negated
        )
        _check_object(clause, clause.accusative)
    if frame.prepositional:
        clause.prepositional = choose_object(
            digits, shape.object, frame.prepositional, subject, False
        )
    if frame.bare:
        clause.bare = digits.pick(frame.bare)
    _set_tense(digits, clause, shape)
    if shape.clock:
        clause.clock = digits.pick(TIMES["clock"])
    if shape.manner:
        clause.manner = digits.pick(frame.manners)
        if shape.tense == "progressive" and clause.manner[0].startswith("for "):
            raise RejectedError  # English would want the perfect progressive here
        clause.tags.add("adverb_order")
    if shape.place:
        clause.place = place_phrase(*digits.pick(frame.places))
        clause.tags.add("two_way_preposition")
    _tag(clause)
    return clause


def _check_object(clause: Clause, nominal: Nominal) -> None:
    """Reject what is grammatical but odd."""
    verb = clause.frame.verb.english
    if verb == "promise" and "possessive" in nominal.tags:
        raise RejectedError
    if nominal.adjective and nominal.adjective.english in _UNPLEASANT and verb in _INTENDED:
        raise RejectedError
    if (verb in _WORN or verb == "celebrate") and "number" in nominal.tags:
        raise RejectedError
    lady = nominal.noun is not None and nominal.noun.english in _LADIES_WEAR
    worn = verb in _WORN or nominal.english.startswith("his ")
    if lady and worn and clause.subject.own_english == "his":
        raise RejectedError


def _set_tense(digits: Digits, clause: Clause, shape: Shape) -> None:
    tense = shape.tense
    verb = clause.frame.verb
    if tense in ("habit", "frequent", "state"):
        clause.tense = "present"
    elif tense in ("modal", "past modal"):
        clause.tense = "modal"
        names = _modal_names(tense, shape.negated)
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
        if verb.english in _EVENTUALLY:
            adverbs = tuple(pair for pair in adverbs if pair[0] != "never")
        clause.adverb = digits.pick(adverbs)
    if shape.time:
        times = TIMES[shape.time]
        if shape.clock:
            times = tuple(pair for pair in times if pair[0] in _DAYS)
        clause.time = digits.pick(times)
    if tense in ("past", "perfect"):
        clause.tags.add("perfect")
    elif tense == "future":
        clause.tags.add("future")


def _modal_names(tense: str, negated: bool) -> tuple[str, ...]:
    if tense == "past modal":
        return ("could", "had to", "wanted")
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
        return phrases.THEY
    feminine = subject.own_english == "her"
    return phrases.SHE if feminine else phrases.HE


def with_shape(shape: Shape, **changes: object) -> Shape:
    """A shape that differs in some respects."""
    return replace(shape, **changes)  # type: ignore[arg-type]
