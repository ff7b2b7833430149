"""Noun phrases and pronouns, in both languages and in every case."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from . import morphology
from .lexicon import Adjective, Noun
from .morphology import Case, Gender
from .penn import prepositional

Agreement = Literal["1sg", "3sg", "pl"]


@dataclass(frozen=True, slots=True)
class Nominal:
    """A noun phrase or pronoun: English trees, and its German in every case but the genitive."""

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
        f"(NP (PRP {subject}))",
        f"(NP (PRP {obj}))",
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
        "(NP (PRP they))" if plural else "(NP (PRP it))",
        "(NP (PRP them))" if plural else "(NP (PRP it))",
        (german[0], german[1], german[2]),
        "pl" if plural else "3sg",
        gender,
        pronoun=True,
    )


def person_name(name: str, female: bool) -> Nominal:
    """A first name."""
    english = f"(NP (NNP {name}))"
    return Nominal(
        english,
        english,
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


def english_noun_phrase(before: str, noun: Noun, plural: bool = False) -> str:
    """A noun with the words before it, in brackets: the tree of the noun phrase."""
    text = noun.english_plural if plural else noun.english
    # Vegetables and drums have no singular in English.
    tag = "NNS" if plural or "nosubject" in noun.tags else "NN"
    if noun.word_class == "language":
        tag = "NNP"
    head, of, rest = text.partition(" of ")
    *modifiers, last = head.split()
    words = [before] if before else []
    words += [f"(NN {word})" for word in modifiers]
    phrase = f"(NP {' '.join(words)} ({tag} {last}))" if words else f"(NP ({tag} {last}))"
    return f"(NP {phrase} {prepositional('of', f'(NP (NNS {rest}))')})" if of else phrase


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
    before = []
    if kind in ("the", "this", "every"):
        before.append(f"(DT {kind})")
    elif kind in ("a", "no"):
        some = kind == "no" and (plural or noun.mass)
        before.append(f"(DT {'any' if some else morphology.a_or_an(words)})")
        declension = "mixed"
    elif kind == "own":
        one = english_word == "one's"
        before.append("(NP (PRP one) (POS 's))" if one else f"(PRP$ {english_word})")
        declension = "mixed"
    elif kind == "number":
        before.append(f"(CD {english_word})")
        declension = "strong"
    else:
        declension = "strong"
    if adjective:
        before.append(f"(JJ {adjective.english})")
    english = english_noun_phrase(" ".join(before), noun, plural)
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
    """Two noun phrases joined by a conjunction; names are joined within one noun phrase."""
    joined = f"(NP {first.english} (CC {english}) {second.english})"
    if first.noun is None:
        joined = f"(NP (NNP {first.name}) (CC {english}) (NNP {second.name}))"
    return Nominal(
        joined,
        joined,
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
