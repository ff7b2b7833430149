"""Noun phrases and pronouns, in both languages and in every case."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from . import morphology
from .lexicon import Adjective, Noun
from .morphology import Case, Gender

Agreement = Literal["1sg", "3sg", "pl"]


@dataclass(frozen=True, slots=True)
class Nominal:
    """A noun phrase or pronoun: its English, and its German in every case but the genitive."""

    english: str
    english_object: str
    german: tuple[str, str, str]
    agreement: Agreement
    gender: Gender
    own_english: str = "its"
    own_german: str = "sein"
    reflexive: tuple[str, str] = ("sich", "sich")
    pronoun: bool = False
    definite: bool = True
    name: str = ""
    noun: Noun | None = None
    adjective: Adjective | None = None
    tags: tuple[str, ...] = ()
    second: Noun | None = None

    def case(self, case: Case) -> str:
        """The German form in a case."""
        return self.german[0 if case == "nom" else 1 if case == "acc" else 2]


def _pronoun(
    english: str, german: str, own: str, reflexive: str, agreement: Agreement, gender: Gender
) -> Nominal:
    subject, obj = english.split()
    nominative, accusative, dative = german.split()
    own_english, own_german = own.split()
    first, second = reflexive.split()
    return Nominal(
        subject,
        obj,
        (nominative, accusative, dative),
        agreement,
        gender,
        own_english,
        own_german,
        (first, second),
        pronoun=True,
        name=subject,
    )


I = _pronoun("I me", "ich mich mir", "my mein", "mich mir", "1sg", "m")  # noqa: E741
YOU = _pronoun("you you", "Sie Sie Ihnen", "your Ihr", "sich sich", "pl", "pl")
HE = _pronoun("he him", "er ihn ihm", "his sein", "sich sich", "3sg", "m")
SHE = _pronoun("she her", "sie sie ihr", "her ihr", "sich sich", "3sg", "f")
WE = _pronoun("we us", "wir uns uns", "our unser", "uns uns", "pl", "pl")
THEY = _pronoun("they them", "sie sie ihnen", "their ihr", "sich sich", "pl", "pl")
PRONOUNS = (I, YOU, HE, SHE, WE, THEY)
THIRD_PRONOUNS = (HE, SHE, THEY)


def it(gender: Gender) -> Nominal:
    """The pronoun for a thing named earlier: it (or they), German by the noun's gender."""
    german = tuple(morphology.personal_pronoun(gender, case) for case in ("nom", "acc", "dat"))
    plural = gender == "pl"
    return Nominal(
        "they" if plural else "it",
        "them" if plural else "it",
        (german[0], german[1], german[2]),
        "pl" if plural else "3sg",
        gender,
        pronoun=True,
    )


def person_name(name: str, female: bool) -> Nominal:
    """A first name."""
    return Nominal(
        name,
        name,
        (name, name, name),
        "3sg",
        "f" if female else "m",
        "her" if female else "his",
        "ihr" if female else "sein",
        name=name,
    )


# Determiners: the (definite), a (indefinite), no (negative), this, every, bare, a number
# ("number:three:drei"), and possessives ("own:my:mein").
Determiner = str


def noun_phrase(
    noun: Noun,
    determiner: Determiner,
    plural: bool = False,
    adjective: Adjective | None = None,
) -> Nominal:
    """A noun with its determiner and perhaps an adjective, inflected throughout."""
    kind, _, rest = determiner.partition(":")
    english_word, _, german_word = rest.partition(":")
    gender: Gender = "pl" if plural else noun.gender
    head = noun.english_plural if plural else noun.english
    words = f"{adjective.english} {head}" if adjective else head
    declension: morphology.Declension = "weak"
    if kind == "the":
        english = f"the {words}"
    elif kind == "a":
        english = f"{morphology.a_or_an(words)} {words}"
        declension = "mixed"
    elif kind == "no":
        english = f"any {words}" if plural or noun.mass else f"{morphology.a_or_an(words)} {words}"
        declension = "mixed"
    elif kind in ("this", "every"):
        english = f"{kind} {words}"
    elif kind == "own":
        english = f"{english_word} {words}"
        declension = "mixed"
    elif kind == "number":
        english = f"{english_word} {words}"
        declension = "strong"
    else:
        english = words
        declension = "strong"
    german = []
    cases: tuple[Case, ...] = ("nom", "acc", "dat")
    for case in cases:
        parts = []
        if kind == "the":
            parts.append(morphology.definite_article(gender, case))
        elif kind == "a":
            parts.append(morphology.ein_word("ein", gender, case))
        elif kind == "no":
            parts.append(morphology.ein_word("kein", gender, case))
        elif kind == "this":
            parts.append(morphology.der_word("dies", gender, case))
        elif kind == "every":
            parts.append(morphology.der_word("jed", gender, case))
        elif kind == "own":
            # Unser keeps its e: unsere, unserem.
            parts.append(morphology.ein_word(german_word, gender, case))
        elif kind == "number":
            parts.append(german_word)
        if adjective:
            parts.append(morphology.adjective(adjective.german, declension, gender, case))
        parts.append(noun.form(plural, case))
        german.append(" ".join(parts))
    feminine = gender == "f" or (noun.gender == "f" and not plural) or noun.english == "girl"
    own_english, own_german = (
        ("their", "ihr") if plural else (("her", "ihr") if feminine else ("his", "sein"))
    )
    tags = []
    if adjective:
        tags.append("adjective_declension")
    if kind == "number":
        tags.append("number")
    if kind == "own":
        tags.append("possessive")
    return Nominal(
        english,
        english,
        (german[0], german[1], german[2]),
        "pl" if plural else "3sg",
        gender,
        own_english,
        own_german,
        definite=kind in ("the", "this", "own", "every"),
        name=f"{noun.english}{'+' if plural else ''}",
        noun=noun,
        adjective=adjective,
        tags=tuple(tags),
    )


def coordinate(
    first: Nominal, second: Nominal, english: str = "and", german: str = "und"
) -> Nominal:
    """Two noun phrases joined by a conjunction."""
    return Nominal(
        f"{first.english} {english} {second.english}",
        f"{first.english_object} {english} {second.english_object}",
        (
            f"{first.german[0]} {german} {second.german[0]}",
            f"{first.german[1]} {german} {second.german[1]}",
            f"{first.german[2]} {german} {second.german[2]}",
        ),
        "pl",
        "pl",
        "their",
        "ihr",
        definite=first.definite and second.definite,
        name=f"{first.name}&{second.name}",
        noun=first.noun,
        adjective=first.adjective,
        second=second.noun,
        tags=tuple(sorted({"coordination", *first.tags, *second.tags})),
    )
