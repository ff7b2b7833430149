"""The lexicon's entries as objects, parsed once from the readable tables."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cache, lru_cache

from . import lexicon_nouns, lexicon_verbs, lexicon_words, morphology
from .morphology import Case, Gender

_GENDER_OF_ARTICLE: dict[str, Gender] = {"der": "m", "die": "f", "das": "n"}

# Classes that name a hand-picked selection of nouns rather than a table.
_SELECTIONS: dict[str, str] = {
    "child_like": "child boy girl baby",
    "person_some": "teacher,doctor,neighbour,boss,colleague,uncle,aunt,grandmother,grandfather,child,"
    "guest,friend,singer,actress,nephew,niece,sister,brother",
    "reading_buy": "book newspaper novel magazine postcard diary",
    "clothing_body": "shirt skirt dress coat jacket sweater blouse suit",
    "clothing_soft": "shirt skirt dress jacket sweater scarf blouse cap",
    "building_big": "castle,church,tower,bridge,museum,stadium,hospital,town hall,theatre,airport,factory",
    "fruit_sweet": "apple,pear,banana,orange,strawberry,cherry,peach",
    "container_big": "suitcase backpack box basket bucket",
    "idea_some": "idea plan question answer reason decision rule",
    "reading_more": "letter article report story novel magazine newspaper",
    "device_use": "computer,camera,oven,washing machine,vacuum cleaner,printer",
    "vehicle_own": "car bicycle motorbike boat truck tractor",
    "tree": "tree",
    "house": "house flat",
    "person_adult": "teacher,doctor,judge,lawyer,engineer,journalist,student,man,woman,boss,colleague,"
    "secretary,grandmother,grandfather,daughter,son,niece,nephew,pupil,girl,boy,friend",
}
_UNIONS: dict[str, tuple[str, ...]] = {"person": ("family", "job", "human")}


# Compared and hashed by identity: every entry exists once, and phrases are cached by entry.
@dataclass(frozen=True, slots=True, eq=False)
class Noun:
    """A noun in both languages."""

    english: str
    english_plural: str
    german: str
    german_plural: str
    gender: Gender
    weak: bool
    word_class: str
    tags: frozenset[str]
    article: bool = True

    @property
    def mass(self) -> bool:
        """Whether the noun has no plural."""
        return self.german_plural == "-"

    def form(self, plural: bool, case: Case) -> str:
        """The German form."""
        gender: Gender = "pl" if plural else self.gender
        return morphology.german_noun(self.german, self.german_plural, gender, self.weak, case)


@dataclass(frozen=True, slots=True, eq=False)
class Adjective:
    """An adjective in both languages; an empty comparative means there is none."""

    english: str
    english_comparative: str
    german: str
    german_comparative: str


@dataclass(frozen=True, slots=True, eq=False)
class Verb:
    """A verb's forms in both languages."""

    english: str
    past: str
    perfect: str
    ing: str
    third: str
    movable: str
    fixed: str
    infinitive: str
    prefix: str
    present: tuple[str, str, str]
    participle: str
    auxiliary: str

    @property
    def name(self) -> str:
        """A key that tells this verb from every other one."""
        return f"{self.english} {self.movable}{self.fixed}/{self.prefix}{self.infinitive}"

    @property
    def phrase(self) -> str:
        """The English verb with its particle or preposition."""
        return f"{self.english} {self.movable}{self.fixed}".strip()


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """A verb in one use, with the company it keeps."""

    verb: Verb
    aspect: str
    subjects: tuple[Noun, ...]
    open_subject: bool
    accusative: tuple[Noun, ...]
    dative: tuple[Noun, ...]
    bare: tuple[Noun, ...]
    prepositional: tuple[Noun, ...]
    preposition: str
    preposition_case: Case
    reflexive: str
    to: bool
    manners: tuple[tuple[str, str], ...]
    places: tuple[tuple[str, str, Noun], ...]
    place_kind: str = ""

    @property
    def has_object(self) -> bool:
        """Whether an object with an article of its own belongs to the verb."""
        return bool(self.accusative or self.dative or self.prepositional)


@dataclass(slots=True)
class Lexicon:
    """All entries, and the indexes that the grammar draws from."""

    nouns: dict[str, Noun] = field(default_factory=dict)
    classes: dict[str, tuple[Noun, ...]] = field(default_factory=dict)
    adjectives: tuple[Adjective, ...] = ()
    adjectives_of: dict[Noun, tuple[Adjective, ...]] = field(default_factory=dict)
    nouns_of: dict[Adjective, tuple[Noun, ...]] = field(default_factory=dict)
    frames: tuple[Frame, ...] = ()
    motions: tuple[Frame, ...] = ()

    def choose(self, specification: str) -> tuple[Noun, ...]:
        """The nouns named by a comma-separated list of classes and ``=noun`` items."""
        chosen: dict[str, Noun] = {}
        for item in filter(None, specification.split(",")):
            if item.startswith("="):
                members: tuple[Noun, ...] = (self.nouns[item[1:]],)
            else:
                members = self.classes[item]
            for noun in members:
                chosen[noun.english] = noun
        return tuple(chosen.values())


def rows(table: str) -> list[list[str]]:
    """The cells of a table, one list a line."""
    return [line.split("|") for line in table.strip().splitlines()]


def pairs(text: str) -> tuple[tuple[str, str], ...]:
    """``english|german`` lines of trees, or words, the German omitted where it is the same."""
    items = text.strip().splitlines() if "(" in text else text.split()
    result = []
    for item in items:
        english, _, german = item.partition("|")
        result.append((english, german or english))
    return tuple(result)


def _read_nouns(lexicon: Lexicon) -> None:
    members: dict[str, list[Noun]] = {}
    for word_class, table in lexicon_nouns.NOUN_TABLES.items():
        for cells in rows(table):
            english, _, plural = cells[0].partition("/")
            article, _, german = cells[1].rpartition(" ")
            tags = frozenset(cells[3].split()) if len(cells) > 3 else frozenset()
            noun = Noun(
                english=english,
                english_plural=plural or morphology.english_plural(english),
                german=german,
                german_plural=cells[2],
                gender=_GENDER_OF_ARTICLE.get(article, "n"),
                weak="weak" in tags,
                word_class=word_class,
                tags=tags,
                article=bool(article),
            )
            # "fruit" and the like may name a class too, but every noun has one English word.
            if english in lexicon.nouns:
                raise ValueError(f"noun listed twice: {english}")
            lexicon.nouns[english] = noun
            for name in {word_class, *tags} - {"weak", "nosubject"}:
                members.setdefault(name, []).append(noun)
    lexicon.classes = {name: tuple(nouns) for name, nouns in members.items()}
    for name, parts in _UNIONS.items():
        lexicon.classes[name] = tuple(n for part in parts for n in lexicon.classes[part])
    for name, words in _SELECTIONS.items():
        chosen = words.split(",") if "," in words else words.split()
        lexicon.classes[name] = tuple(lexicon.nouns[word] for word in chosen)
    lexicon.classes["person_grown"] = tuple(
        noun
        for noun in lexicon.classes["person"]
        if noun.english not in ("friend", "child", "guest")
    )


def _english_comparative(word: str, given: str) -> str:
    return {"more": f"more {word}", "-": ""}.get(given, given)


def _read_adjectives(lexicon: Lexicon) -> None:
    adjectives = []
    of_noun: dict[Noun, list[Adjective]] = {}
    for english, comparative, german, german_comparative, classes in rows(
        lexicon_words.ADJECTIVE_TABLE
    ):
        if german_comparative == "=":
            german_comparative = morphology.german_comparative(german)
        entry = Adjective(
            english, _english_comparative(english, comparative), german, german_comparative
        )
        adjectives.append(entry)
        lexicon.nouns_of[entry] = lexicon.choose(classes)
        for noun in lexicon.nouns_of[entry]:
            of_noun.setdefault(noun, []).append(entry)
    lexicon.adjectives = tuple(adjectives)
    lexicon.adjectives_of = {noun: tuple(entries) for noun, entries in of_noun.items()}


def _read_verb(english: str, infinitive: str, er_form: str, participle: str) -> Verb:
    head, *principal = english.split(",")
    fixed = movable = ""
    if "_" in head:
        head, movable = head.split("_", 1)
    elif "=" in head:
        head, fixed = head.split("=", 1)
        fixed = fixed.replace("=", " ")
    past, perfect = principal or (morphology.english_past(head),) * 2
    infinitive = infinitive.removeprefix("sich ")
    prefix, dot, stem = infinitive.partition("·")
    if not dot:
        prefix, stem = "", infinitive
    return Verb(
        english=head,
        past=past,
        perfect=perfect,
        ing=morphology.english_ing(head),
        third=morphology.english_third_person(head),
        movable=movable,
        fixed=fixed,
        infinitive=stem,
        # A noun as prefix stays a word of its own (Rad fahren).
        prefix=prefix + " " if prefix[:1].isupper() else prefix,
        present=morphology.german_present(stem, er_form),
        participle=participle.removeprefix("+"),
        auxiliary="sein" if participle.startswith("+") else "haben",
    )


def _read_places(lexicon: Lexicon, group: str) -> tuple[tuple[str, str, Noun], ...]:
    if not group:
        return ()
    return tuple(
        (english, german, lexicon.nouns[noun])
        for english, german, noun in rows(lexicon_words.PLACE_TABLES[group])
        if noun in lexicon.nouns
    )


def _read_frame(lexicon: Lexicon, cells: list[str]) -> Frame:
    english, infinitive, er_form, participle, aspect, subject, complements, *adverbs = cells
    wanted = {"acc": "", "dat": "", "bare": ""}
    preposition = ""
    preposition_case: Case = "acc"
    prepositional = ""
    reflexive = "acc" if infinitive.startswith("sich ") else ""
    to = False
    # Nouns of two words hold a space, so complements are cut at their keys, not at spaces.
    text = complements
    for key in ("acc:", "dat:", "bare:", "prep:", "refl_dat", "refl", "to"):
        text = text.replace(f" {key}", f"\n{key}")
    for item in filter(None, text.split("\n")):
        kind, _, rest = item.partition(":")
        if kind == "prep":
            governed, _, prepositional = rest.partition(":")
            preposition, _, case_name = governed.partition("+")
            preposition_case = "dat" if case_name == "dat" else "acc"
        elif kind in wanted:
            wanted[kind] = rest
        elif kind == "refl_dat":
            reflexive = "dat"
        elif kind == "refl":
            reflexive = "acc"
        elif kind == "to":
            to = True
        else:
            raise ValueError(f"unknown complement {item!r} of {english}")
    groups = dict(item.split("=") for item in (adverbs[0].split() if adverbs else []))
    manners = pairs(lexicon_words.MANNER_TABLES[groups["m"]]) if groups.get("m") else ()
    return Frame(
        verb=_read_verb(english, infinitive, er_form, participle),
        aspect=aspect,
        subjects=lexicon.choose(subject),
        open_subject="person" in subject.split(","),
        accusative=lexicon.choose(wanted["acc"]),
        dative=lexicon.choose(wanted["dat"]),
        bare=lexicon.choose(wanted["bare"]),
        prepositional=lexicon.choose(prepositional),
        preposition=preposition,
        preposition_case=preposition_case,
        reflexive=reflexive,
        to=to,
        manners=manners,
        places=_read_places(lexicon, groups.get("p", "")),
    )


@lru_cache(maxsize=1)
def load() -> Lexicon:
    """The lexicon, parsed on first use."""
    lexicon = Lexicon()
    _read_nouns(lexicon)
    _read_adjectives(lexicon)
    lexicon.frames = tuple(_read_frame(lexicon, r) for r in rows(lexicon_verbs.VERB_TABLE))
    motions = []
    for cells in rows(lexicon_verbs.MOTION_TABLE):
        frame = _read_frame(lexicon, [*cells[:6], "", ""])
        kind, _, group = cells[6].partition(":")
        places = _read_places(lexicon, group) if kind == "loc" and group != "city" else ()
        motions.append(
            Frame(
                **{
                    name: getattr(frame, name)
                    for name in Frame.__dataclass_fields__
                    if name not in ("places", "place_kind")
                },
                places=places,
                place_kind=cells[6],
            )
        )
    lexicon.motions = tuple(motions)
    return lexicon


# Out of a hundred combinations of either kind, how many only the test split may show.
RESERVED_PER_HUNDRED = 7


@cache
def reserved(kind: str, first: str, second: str) -> bool:
    """Whether a combination of two words (or of construction and verb) is held out of training.

    The cache is bounded by the number of combinations the lexicon allows.
    """
    digest = hashlib.blake2b(f"{kind}|{first}|{second}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") % 100 < RESERVED_PER_HUNDRED
