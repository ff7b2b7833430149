"""Inflection of English and German words, by rule plus short lists of exceptions."""

from __future__ import annotations

from typing import Literal

Case = Literal["nom", "acc", "dat", "gen"]
Gender = Literal["m", "f", "n", "pl"]
Declension = Literal["weak", "mixed", "strong"]

CASES: tuple[Case, ...] = ("nom", "acc", "dat", "gen")

# Endings in the order of CASES.
_DEFINITE_ARTICLE: dict[Gender, tuple[str, ...]] = {
    "m": ("der", "den", "dem", "des"),
    "f": ("die", "die", "der", "der"),
    "n": ("das", "das", "dem", "des"),
    "pl": ("die", "die", "den", "der"),
}
_DER_WORD_ENDING: dict[Gender, tuple[str, ...]] = {
    "m": ("er", "en", "em", "es"),
    "f": ("e", "e", "er", "er"),
    "n": ("es", "es", "em", "es"),
    "pl": ("e", "e", "en", "er"),
}
_EIN_WORD_ENDING: dict[Gender, tuple[str, ...]] = {
    "m": ("", "en", "em", "es"),
    "f": ("e", "e", "er", "er"),
    "n": ("", "", "em", "es"),
    "pl": ("e", "e", "en", "er"),
}
_ADJECTIVE_ENDING: dict[Declension, dict[Gender, tuple[str, ...]]] = {
    "weak": {
        "m": ("e", "en", "en", "en"),
        "f": ("e", "e", "en", "en"),
        "n": ("e", "e", "en", "en"),
        "pl": ("en", "en", "en", "en"),
    },
    "mixed": {
        "m": ("er", "en", "en", "en"),
        "f": ("e", "e", "en", "en"),
        "n": ("es", "es", "en", "en"),
        "pl": ("en", "en", "en", "en"),
    },
    "strong": {
        "m": ("er", "en", "em", "en"),
        "f": ("e", "e", "er", "er"),
        "n": ("es", "es", "em", "en"),
        "pl": ("e", "e", "en", "er"),
    },
}
_RELATIVE_PRONOUN: dict[Gender, tuple[str, ...]] = {
    "m": ("der", "den", "dem", "dessen"),
    "f": ("die", "die", "der", "deren"),
    "n": ("das", "das", "dem", "dessen"),
    "pl": ("die", "die", "denen", "deren"),
}
_PERSONAL_PRONOUN: dict[Gender, tuple[str, ...]] = {
    "m": ("er", "ihn", "ihm", "seiner"),
    "f": ("sie", "sie", "ihr", "ihrer"),
    "n": ("es", "es", "ihm", "seiner"),
    "pl": ("sie", "sie", "ihnen", "ihrer"),
}
_IRREGULAR_STEM = {
    "teuer": "teur",
    "sauer": "saur",
    "dunkel": "dunkl",
    "hoch": "hoh",
    "müde": "müd",
    "weise": "weis",
}
_INDECLINABLE = frozenset({"Schweizer"})
_CONTRACTION = {
    ("in", "dem"): "im",
    ("an", "dem"): "am",
    ("von", "dem"): "vom",
    ("bei", "dem"): "beim",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
    ("in", "das"): "ins",
    ("an", "das"): "ans",
}


def definite_article(gender: Gender, case: Case) -> str:
    """The definite article: der, die, das in every case."""
    return _DEFINITE_ARTICLE[gender][CASES.index(case)]


def relative_pronoun(gender: Gender, case: Case) -> str:
    """The relative pronoun: der, die, das in every case."""
    return _RELATIVE_PRONOUN[gender][CASES.index(case)]


def personal_pronoun(gender: Gender, case: Case) -> str:
    """The third-person pronoun that stands for a noun of this gender."""
    return _PERSONAL_PRONOUN[gender][CASES.index(case)]


def ein_word(stem: str, gender: Gender, case: Case) -> str:
    """Forms of ein, kein and the possessives."""
    return stem + _EIN_WORD_ENDING[gender][CASES.index(case)]


def der_word(stem: str, gender: Gender, case: Case) -> str:
    """Forms of dieser, jeder and welcher, from the stem dies-, jed-, welch-."""
    return stem + _DER_WORD_ENDING[gender][CASES.index(case)]


def adjective(word: str, declension: Declension, gender: Gender, case: Case) -> str:
    """The attributive form of a German adjective."""
    if word in _INDECLINABLE:
        return word
    stem = _IRREGULAR_STEM.get(word, word)
    return stem + _ADJECTIVE_ENDING[declension][gender][CASES.index(case)]


def german_comparative(word: str) -> str:
    """The regular comparative of a German adjective."""
    return word + ("r" if word.endswith("e") else "er")


_LONG_GENITIVE = frozenset({"Mann", "Kind", "Freund", "Arzt", "Zahnarzt", "Gast", "Dieb"})


def german_noun(singular: str, plural: str, gender: Gender, weak: bool, case: Case) -> str:
    """A German noun in the given case; the gender "pl" asks for the plural."""
    if gender == "pl":
        if case == "dat" and not plural.endswith(("n", "s")):
            return plural + "n"
        return plural
    if weak and case != "nom":
        # Neighbours, farmers and bears add -n, students -en: both equal the plural.
        return plural
    if case == "gen" and gender != "f":
        if singular.endswith(("s", "ß", "x", "z")) or singular in _LONG_GENITIVE:
            return singular + "es"
        return singular + "s"
    return singular


def contract(preposition: str, phrase: str) -> str:
    """Preposition and noun phrase, contracted as usage wants (in dem -> im)."""
    article, _, rest = phrase.partition(" ")
    joined = _CONTRACTION.get((preposition, article))
    return f"{joined} {rest}" if joined and rest else f"{preposition} {phrase}"


def german_present(infinitive: str, er_form: str) -> tuple[str, str, str]:
    """Present tense for ich, er and wir, from an infinitive without its prefix."""
    if infinitive in _IRREGULAR_FIRST_PERSON:
        return _IRREGULAR_FIRST_PERSON[infinitive], er_form, infinitive
    if infinitive.endswith("eln"):
        first = infinitive[:-3] + "le"
    elif infinitive.endswith("en"):
        first = infinitive[:-1]
    else:
        first = infinitive[:-1] + "e"
    return first, er_form, infinitive


_IRREGULAR_FIRST_PERSON = {"mögen": "mag"}

_DOUBLING = frozenset(
    "swim run put cut get sit plan jog chat knit hug stop win forget travel cancel begin".split()
)
_IRREGULAR_ING = {"lie": "lying", "die": "dying"}
_AN_EXCEPTIONS = ("hour", "honest")
_A_EXCEPTIONS = ("uni", "use", "euro", "one")


def english_plural(noun: str) -> str:
    """The regular English plural."""
    if noun.endswith(("s", "x", "ch", "sh")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + "s"


def english_third_person(verb: str) -> str:
    """The third person singular of the simple present."""
    if verb == "have":
        return "has"
    if verb.endswith(("s", "x", "ch", "sh", "o", "z")):
        return verb + "es"
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return verb[:-1] + "ies"
    return verb + "s"


def english_past(verb: str) -> str:
    """The regular simple past (and past participle)."""
    if verb.endswith("e"):
        return verb + "d"
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return verb[:-1] + "ied"
    if verb in _DOUBLING:
        return verb + verb[-1] + "ed"
    return verb + "ed"


def english_ing(verb: str) -> str:
    """The present participle."""
    if verb in _IRREGULAR_ING:
        return _IRREGULAR_ING[verb]
    if verb in _DOUBLING:
        return verb + verb[-1] + "ing"
    if verb.endswith("e") and not verb.endswith(("ee", "ye", "oe")) and verb != "be":
        return verb[:-1] + "ing"
    return verb + "ing"


def a_or_an(following: str) -> str:
    """The English indefinite article before the word that follows."""
    word = following.lower()
    if word.startswith(_AN_EXCEPTIONS):
        return "an"
    if word.startswith(_A_EXCEPTIONS) or word[0] not in "aeiou":
        # "unusual" begins with a vowel sound, unlike "university" and "uniform".
        return "an" if word.startswith(("unim", "unin")) else "a"
    return "an"
