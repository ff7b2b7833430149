"""Constructions of place: rest and motion with two-way prepositions, journeys."""

from __future__ import annotations

from functools import cache

from . import clauses, lexicon_words, morphology, nominals, phrases
from .clauses import (
    LEXICON,
    NAMES,
    NUMBERS,
    Digits,
    RejectedError,
    Shape,
    build_clause,
    cached_phrase,
    place_phrase,
)
from .grammar import (
    AGREEMENT_INDEX,
    Builder,
    Sentence,
    add,
    check_asked,
    sentence,
    table,
)
from .lexicon import Adjective, Frame, Noun, pairs
from .penn import prepositional, subordinate, words
from .relations import be_forms

# Places and directions ----------------------------------------------------------------------------

_ON = ("on", "auf")
_POSITIONS = (
    ("under", "unter"),
    ("next to", "neben"),
    ("behind", "hinter"),
    _ON,
    ("in front of", "vor"),
)


def _position_noun(digits: Digits) -> tuple[str, str, Noun]:
    english, german = digits.pick((*_POSITIONS, ("in", "in")))
    if english == "in":
        furniture = LEXICON.classes["interior"]
    elif english == "on":
        furniture = LEXICON.classes["surface"]
    else:
        furniture = tuple(n for n in LEXICON.classes["furniture"] if n.english != "carpet")
    return english, german, digits.pick(furniture)


_KITCHENWARE = frozenset("glass cup plate bottle pot pan bowl".split())


def _holds(ground: Noun, thing: Noun, preposition: str) -> bool:
    """Whether a thing that stands may stand there."""
    if preposition == "in":
        return ground.english == "cupboard"
    if thing.english in _KITCHENWARE:
        return preposition == "on" and ground.english in ("table", "desk", "chest of drawers")
    return preposition != "on" or ground.english not in ("bed", "sofa", "armchair")


@cache
def _looks(ground: Noun) -> tuple[Adjective, ...]:
    """Adjectives that tell one piece of furniture from the next at a glance."""
    unseen = (
        "expensive",
        "cheap",
        "heavy",
        "light",
        "dirty",
        "broken",
        "practical",
        "comfortable",
        "hard",
        "soft",
        "simple",
        "valuable",
        "good",
    )
    found = LEXICON.adjectives_of.get(ground, ())
    return tuple(a for a in found if a.english not in unseen)


def _position(form: str) -> Builder:
    """Rest (dative) against motion (accusative) with the same preposition."""

    def build(digits: Digits, noun: Noun) -> Sentence:
        english_preposition, german_preposition, ground = _position_noun(digits)
        if ground is noun:
            raise RejectedError
        lying = "upright" not in noun.tags
        if not lying and not _holds(ground, noun, english_preposition):
            raise RejectedError
        adjective = digits.pick((None, *_looks(ground)))
        at = cached_phrase(ground, "the", False, adjective)
        tags = {"two_way_preposition", *at.tags}
        where_english = prepositional(english_preposition, at.english)
        dative = morphology.contract(german_preposition, at.case("dat"))
        accusative = morphology.contract(german_preposition, at.case("acc"))
        if form in ("rest", "rest question", "rest plural"):
            plural = form == "rest plural"
            determiner = "the"
            if plural:
                determiner = digits.pick(("the", *NUMBERS[:5]))
            thing = cached_phrase(noun, determiner, plural, None)
            tags.update(thing.tags)
            verb = ("lying", "liegt", "liegen") if lying else ("standing", "steht", "stehen")
            be = be_forms(thing)[0]
            english_verb = f"(VP (VBG {verb[0]}) {where_english})"
            german_verb = verb[2] if plural else verb[1]
            digits.close()
            if form == "rest question":
                english = f"(SQ {be} {thing.english} {english_verb})"
                german = f"{german_verb} {thing.case('nom')} {dative}"
                tags.add("yes_no_question")
            else:
                english = f"(S {thing.english} (VP {be} {english_verb}))"
                german = f"{thing.case('nom')} {german_verb} {dative}"
        else:
            person = digits.pick(nominals.PRONOUNS + NAMES)
            determiner = digits.pick(("the", "a"))
            thing = cached_phrase(noun, determiner, False, None)
            infinitive, er_form, participle = (
                ("legen", "legt", "gelegt") if lying else ("stellen", "stellt", "gestellt")
            )
            index = AGREEMENT_INDEX[person.agreement]
            subject, goal = person.case("nom"), accusative
            what = thing.case("acc")
            put = f"{thing.english} {where_english}"
            if form == "motion past":
                time = digits.pick(clauses.NEAR_PAST)
                has = ("habe", "hat", "haben")[index]
                english = f"(VP (VBD put) {put} {time[0]})"
                german = f"{subject} {has} {time[1]} {what} {goal} {participle}"
                tags.add("perfect")
            elif form == "motion modal":
                modal = phrases.MODALS[digits.pick(("must", "can", "want", "should"))]
                finite = modal.plural if index == 2 else modal.singular
                rest = modal.rest.format(vp=f"(VP (VB put) {put})", more="")
                english = f"(VP {modal.english[index]} {rest})"
                german = f"{subject} {finite} {what} {goal} {infinitive}"
                tags.add("modal")
            else:
                be = be_forms(person)[0]
                finite = morphology.german_present(infinitive, er_form)[index]
                english = f"(VP {be} (VP (VBG putting) {put}))"
                german = f"{subject} {finite} {what} {goal}"
            english = f"(S {person.english} {english})"
            digits.close()
        result = sentence(english, german, tags, "?" if form == "rest question" else ".")
        result.nominals.append(at)
        return result

    return build


_CITIES = pairs(lexicon_words.CITIES)
_COUNTRIES = [(e, g, g) for e, g in pairs(lexicon_words.COUNTRIES_BARE)] + [
    (cells[0], cells[1], cells[2])
    for cells in (text.split("|") for text in lexicon_words.COUNTRIES_WITH_ARTICLE)
]


# Where no road leads.
_OVERSEAS = frozenset(
    ("Japan", "China", "India", "Canada", "Brazil", "Australia", "the United States", "Ireland")
)


def _named(name: str) -> str:
    """The noun phrase of a city or a country."""
    tags = {"the": "DT", "States": "NNPS"}
    tokens = [f"({tags.get(word, 'NNP')} {word})" for word in name.split()]
    return f"(NP {' '.join(tokens)})"


def destinations(kind: str) -> list[tuple[str, str]]:
    """Where to, where, or where from, in both languages."""
    role, _, group = kind.partition(":")
    if role == "dir" and group in lexicon_words.DIRECTION_TABLES:
        return [
            clauses.direction_phrase(german, LEXICON.nouns[noun])
            for german, noun in table(lexicon_words.DIRECTION_TABLES[group])
        ]
    cities = [(e, {"dir": "nach", "loc": "in", "origin": "aus"}[role], g) for e, g in _CITIES]
    english = {"dir": "to", "loc": "in", "origin": "from"}[role]
    result = [
        (prepositional(english, _named(e)), f"{preposition} {g}") for e, preposition, g in cities
    ]
    if group in ("city", "far", "settle", "near"):
        for name, accusative, dative in _COUNTRIES:
            if group == "near" and name in _OVERSEAS:
                continue
            with_article = " " in accusative
            if role == "dir":
                german = f"in {accusative}" if with_article else f"nach {accusative}"
            else:
                german = f"{'in' if role == 'loc' else 'aus'} {dative}"
            result.append((prepositional(english, _named(name)), german))
    return result


def _motion(shape: Shape, form: str = "") -> Builder:
    cache: dict[str, list[tuple[str, str]]] = {}

    def build(digits: Digits, frame: Frame) -> Sentence:
        clause = build_clause(digits, frame, shape)
        clause.tags.add("motion_or_location")
        if frame.places:
            clause.place = place_phrase(*digits.pick(frame.places))
            clause.tags.add("two_way_preposition")
        else:
            kind = frame.place_kind
            if kind not in cache:
                cache[kind] = destinations(kind)
            goal = digits.pick(cache[kind])
            clause.direction = goal
            # My neighbour does not go to the neighbour.
            if clause.subject.noun and clause.subject.noun.english in words(goal[0]):
                raise RejectedError
            if not kind.startswith("origin") and goal[1].startswith(("in ", "ins ", "auf ")):
                clause.tags.add("two_way_preposition")
        if clause.time:
            clause.tags.add("adverb_order")
        digits.close()
        if form == "question":
            check_asked(clause)
            return sentence(
                clause.english_question(),
                clause.german_question(),
                {"yes_no_question"},
                "?",
                clause,
            )
        if form == "front" and clause.time:
            return sentence(
                f"(S {clause.time[0]} {clause.english_statement(time=False)})",
                clause.german_main(front=clause.time[1], time=False),
                {"word_order_v2_inversion"},
                ".",
                clause,
            )
        if form == "that":
            that = subordinate("that", clause.english_statement())
            return sentence(
                f"(S (NP (PRP I)) (VP (VBP know) {that}))",
                f"ich weiß, dass {clause.german_final()}",
                {"subordinate_clause", "word_order_verb_final"},
                ".",
                clause,
            )
        return sentence(
            f"(S {clause.english_statement()})", clause.german_main(), set(), ".", clause
        )

    return build


def _register_places() -> None:
    things = [
        n
        for n in LEXICON.nouns.values()
        if ("flat" in n.tags or "upright" in n.tags) and n.word_class != "reading_only"
    ]
    countable = [n for n in things if not n.mass]
    add("position", 18, things, _position("rest"))
    add("position", 12, countable, _position("rest plural"))
    add("position_question", 10, things, _position("rest question"))
    add("putting", 10, things, _position("motion"))
    add("putting", 8, things, _position("motion past"))
    add("putting", 8, things, _position("motion modal"))
    motions = LEXICON.motions
    for subject in ("noun", "name", "pronoun", "pair"):
        for tense, time, form in (
            ("progressive", "progressive", ""),
            ("past", "past", ""),
            ("past", "past", "front"),
            ("future", "future", ""),
            ("future", "future", "front"),
            ("modal", "modal", ""),
            ("state", "", ""),
            ("past", "", "question"),
            ("progressive", "", "question"),
            ("past", "past", "that"),
        ):
            shape = Shape(subject, "the", tense, time=time)
            foci = [f for f in motions if clauses.fits(f, shape)]
            if tense in ("progressive", "modal") and time:
                foci = [f for f in foci if f.verb.english not in ("move", "sit", "stand")]
            if tense in ("future", "modal"):
                foci = [f for f in foci if f.verb.english not in ("sit", "stand")]
            if foci:
                add("motion", 5 if tense != "state" else 3, foci, _motion(shape, form))


_register_places()
