"""Constructions with infinitives, requests, pronouns, weather, existence and possession."""

from __future__ import annotations

from . import clauses, lexicon_words, nominals, restrictions
from .clauses import (
    LEXICON,
    NAMES,
    NUMBERS,
    Digits,
    RejectedError,
    Shape,
    build_clause,
    cached_phrase,
    frames_for,
    place_phrase,
    refer,
    with_shape,
)
from .grammar import (
    AGREEMENT_INDEX,
    INFINITIVE_MATRICES,
    Builder,
    Sentence,
    add,
    fresh,
    sentence,
    table,
)
from .lexicon import Adjective, Frame, Noun
from .nominals import Nominal
from .penn import adjective_phrase, present, subordinate, to_infinitive, words
from .places import destinations
from .relations import be_forms
from .restrictions import ERRANDS, PASTIMES, REFUSED, REQUESTED, is_person

# Infinitives, requests, pronouns ------------------------------------------------------------------


def _zu_infinitive(shape: Shape) -> Builder:
    def build(digits: Digits, frame: Frame) -> Sentence:
        english, german = digits.pick(INFINITIVE_MATRICES)
        clause = build_clause(digits, frame, shape)
        digits.close()
        index = AGREEMENT_INDEX[clause.subject.agreement]
        verb_phrase = english[index].replace("_", to_infinitive(clause.english_infinitive()))
        # vorhaben is separable, and its prefix closes the matrix clause.
        return sentence(
            f"(S {clause.subject.english} {verb_phrase})",
            f"{clause.subject.case('nom')} {german[index]}, {clause.german_infinitive(True)}",
            {"infinitive_zu"},
            ".",
            clause,
        )

    return build


def _impersonal_infinitive(shape: Shape) -> Builder:
    matrices = table(lexicon_words.INFINITIVE_IMPERSONAL)

    def build(digits: Digits, frame: Frame) -> Sentence:
        english, german = digits.pick(matrices)
        clause = build_clause(digits, frame, shape, _ONESELF)
        digits.close()
        return sentence(
            f"(S {english.replace('_', to_infinitive(clause.english_infinitive()))})",
            f"{german}, {clause.german_infinitive(True)}",
            {"infinitive_zu"},
            ".",
            clause,
        )

    return build


_ONESELF = Nominal(
    "one", "one", ("man", "einen", "einem"), "3sg", "m", "one's", "sein", pronoun=True, name="one"
)


def _purpose(shape: Shape) -> Builder:
    """She is going to the kitchen to cook the soup: um ... zu."""

    def build(digits: Digits, frame: Frame) -> Sentence:
        clause = build_clause(digits, frame, shape)
        _, german_preposition, noun = digits.pick(frame.places)
        if german_preposition not in ("in", "an", "auf") or noun.word_class == "furniture":
            raise RejectedError
        if noun.english in ("station", "river", "lake"):
            german_preposition = "zu"
        elif noun.english == "sea":
            german_preposition = "an"
        goal = clauses.direction_phrase(german_preposition, noun)
        past = digits.pick((False, True))
        digits.close()
        subject = clause.subject
        index = AGREEMENT_INDEX[subject.agreement]
        if past:
            finite = ("bin", "ist", "sind")[index]
            matrix = f"{subject.case('nom')} {finite} {goal[1]} gegangen"
        else:
            finite = ("gehe", "geht", "gehen")[index]
            matrix = f"{subject.case('nom')} {finite} {goal[1]}"
        rest = f"{goal[0]} {to_infinitive(clause.english_infinitive())}"
        english = (
            f"(VBD went) {rest}" if past else f"{be_forms(subject)[0]} (VP (VBG going) {rest})"
        )
        return sentence(
            f"(S {subject.english} (VP {english}))",
            f"{matrix}, um {clause.german_infinitive(True)}",
            {"infinitive_zu", "two_way_preposition"},
            ".",
            clause,
        )

    return build


def _request(shape: Shape) -> Builder:
    def build(digits: Digits, frame: Frame) -> Sentence:
        clause = build_clause(digits, frame, shape, nominals.YOU)
        clause.negated = digits.pick((False, True))
        if clause.negated and (clause.time or frame.verb.phrase not in REFUSED):
            raise RejectedError
        if clause.negated and clause.accusative and not clause.accusative.definite:
            raise RejectedError
        digits.close()
        words = [f"{frame.verb.prefix}" if frame.verb.prefix else ""]
        middle = clause.german_middle()
        german = " ".join([frame.verb.infinitive, "Sie", *middle, words[0].strip()]).strip()
        tags = {"request"}
        if clause.negated:
            tags.add("negation_nicht")
        english = clause.english_infinitive()
        if clause.negated:
            english = f"(VP (VB do) (RB not) {english})"
        return sentence(
            f"(S (INTJ (UH please)) {english})",
            f"bitte {german}",
            tags,
            ".",
            clause,
        )

    return build


# Reasons to part with a thing or to be disappointed by it; all are true of many things.
_FAULTS = frozenset("big small heavy loud slow long short hard".split())
_MERITS = frozenset(
    "beautiful good cheap practical comfortable modern elegant valuable interesting fresh sweet "
    "exciting fast warm useful".split()
)


def _fault(digits: Digits, noun: Noun, among: frozenset[str]) -> Adjective:
    return digits.pick(tuple(a for a in LEXICON.adjectives_of.get(noun, ()) if a.english in among))


def _but(first: str, second: str) -> str:
    """Two main clauses joined by but."""
    return f"(S (S {first}) (, ,) (CC but) (S {second}))"


def _but_it(kind: str, shape: Shape) -> Builder:
    """It agrees with the noun it stands for: er, sie or es."""

    def build(digits: Digits, frame: Frame) -> Sentence:
        clause = build_clause(digits, frame, shape)
        thing = clause.accusative
        if thing is None or thing.noun is None or is_person(thing.noun) or thing.pronoun:
            raise RejectedError
        if thing.noun.word_class in ("pet", "farm", "wild"):
            raise RejectedError
        adjective = _fault(digits, thing.noun, _FAULTS if kind == "but" else _MERITS)
        if thing.adjective is not None:
            raise RejectedError
        digits.close()
        pronoun = nominals.it(thing.gender)
        is_en, is_de = be_forms(pronoun)
        degree = ("too", "zu") if kind == "but" else ("very", "sehr")
        predicate = adjective_phrase(adjective.english, degree[0])
        english = f"{pronoun.english} (VP {is_en} {predicate})"
        if kind == "but":
            english = _but(clause.english_statement(), english)
            german = f"aber {pronoun.case('nom')} {is_de} {degree[1]} {adjective.german}"
            tags = {"pronoun_gender", "coordination"}
        else:
            because = subordinate("because", english)
            english = f"(S {clause.english_statement(reason=because)})"
            german = f"weil {pronoun.case('nom')} {degree[1]} {adjective.german} {is_de}"
            tags = {"pronoun_gender", "subordinate_clause", "word_order_verb_final"}
        result = sentence(
            english,
            f"{clause.german_main()}, {german}",
            tags,
            ".",
            clause,
        )
        result.nominals.append(cached_phrase(thing.noun, "the", False, adjective))
        return result

    return build


_LOOK = next(f for f in LEXICON.frames if f.verb.english == "look" and f.verb.fixed == "for")


def _needs_it(negated: bool) -> Builder:
    """He is looking for the key because he needs it: the pronoun in the accusative."""

    def build(digits: Digits, kind: str) -> Sentence:
        subject = clauses.choose_subject(digits, kind, _LOOK.subjects)
        object_kind = digits.pick(("the", "own", "the plural"))
        clause = build_clause(
            digits, _LOOK, Shape(kind, object_kind, "past" if negated else "progressive"), subject
        )
        thing = clause.accusative
        if thing is None or thing.noun is None or thing.noun.word_class == "pet":
            raise RejectedError
        if thing.noun.word_class == "footwear" and thing.agreement == "3sg":
            raise RejectedError
        digits.close()
        person, pronoun = refer(subject), nominals.it(thing.gender)
        index = AGREEMENT_INDEX[person.agreement]
        accusative = pronoun.case("acc")
        if negated:
            could = ("konnte", "konnte", "konnten")[index]
            find = f"(VP (VB find) {pronoun.english_object})"
            english = _but(
                clause.english_statement(), f"{person.english} (VP (MD could) (RB not) {find})"
            )
            german = f", aber {person.case('nom')} {could} {accusative} nicht finden"
            tags = {"pronoun_gender", "coordination", "negation_nicht", "modal"}
        else:
            brauchen = ("brauche", "braucht", "brauchen")[index]
            needs = f"(VP {present('need')[index]} {pronoun.english_object})"
            because = subordinate("because", f"{person.english} {needs}")
            english = f"(S {clause.english_statement(reason=because)})"
            german = f", weil {person.case('nom')} {accusative} {brauchen}"
            tags = {"pronoun_gender", "subordinate_clause", "word_order_verb_final"}
        return sentence(
            english,
            f"{clause.german_main()}{german}",
            tags,
            ".",
            clause,
        )

    return build


def _register_infinitives() -> None:
    for shape in (
        Shape("name", "the", "progressive"),
        Shape("pronoun", "a adjective", "progressive"),
        Shape("noun", "own", "progressive"),
        Shape("pair", "the", "progressive"),
    ):
        foci = [f for f in frames_for(shape) if f.open_subject and f.verb.phrase in ERRANDS]
        add("zu_infinitive", 18, fresh("zu", shape, foci), _zu_infinitive(shape))
        located = [f for f in foci if f.places and f.verb.english not in ("wait", "arrive")]
        add("purpose", 18, fresh("purpose", shape, located), _purpose(shape))
    for shape in (
        Shape("pronoun", "the", "progressive"),
        Shape("pronoun", "the plural", "progressive"),
    ):
        useful = ERRANDS - PASTIMES
        foci = [f for f in frames_for(shape) if f.open_subject and f.verb.phrase in useful]
        add(
            "impersonal_infinitive",
            6,
            fresh("impersonal", with_shape(shape, subject="one"), foci),
            _impersonal_infinitive(shape),
        )
    for shape in (
        Shape("pronoun", "the", "progressive"),
        Shape("pronoun", "own", "progressive", time="modal"),
        Shape("pronoun", "the plural", "progressive", time="modal"),
    ):
        foci = [f for f in frames_for(shape) if f.verb.phrase in REQUESTED]
        add("request", 51, fresh("request", shape, foci), _request(shape))
    getting = frozenset("buy order rent".split())
    for shape in (
        Shape("name", "a", "past", time="past"),
        Shape("pronoun", "a", "past"),
        Shape("noun", "this", "past"),
        Shape("pair", "a", "past"),
    ):
        foci = [f for f in frames_for(shape) if f.verb.english in getting and f.accusative]
        foci = [f for f in foci if not f.verb.fixed and not f.dative]
        add("but_it", 11, foci, _but_it("but", shape))
    wanting = frozenset("buy need order rent recommend love like".split())
    for shape in (
        Shape("name", "this", "state"),
        Shape("pronoun", "this", "state"),
        Shape("pronoun", "the", "future"),
        Shape("noun", "a", "past"),
        Shape("name", "a", "past", time="past"),
    ):
        foci = [f for f in frames_for(shape) if f.verb.english in wanting and f.accusative]
        add("because_it", 8, foci, _but_it("because", shape))
    add("needs_it", 14, ("noun", "name", "pronoun", "pair"), _needs_it(False))
    add("needs_it", 14, ("noun", "name", "pronoun", "pair"), _needs_it(True))


# Weather, existence, possession -------------------------------------------------------------------


def _weather(verb_phrase: str, place: str, time: str, front: bool) -> str:
    """The tree of a sentence on the weather; {} in its VP is for where and when."""
    if front:
        return f"(S {time} (NP (PRP it)) {verb_phrase.format(place)})"
    return f"(S (NP (PRP it)) {verb_phrase.format(f'{place} {time}')})"


def _weather_verb(tense: str) -> Builder:
    places = destinations("loc:city")

    def build(digits: Digits, cells: tuple[str, ...]) -> Sentence:
        english, ing, past, infinitive, er_form, participle = cells
        place = digits.pick(places)
        front = digits.pick((False, True))
        if tense == "present":
            time = digits.pick(clauses.TIMES["progressive"][:3])
            if front and words(time[0]) != "today":
                raise RejectedError
            verb, finite, tail = f"(VP (VBZ is) (VP (VBG {ing}) {{}}))", er_form, ""
        elif tense == "past":
            time = digits.pick(clauses.TIMES["past"])
            verb, finite, tail = f"(VP (VBD {past}) {{}})", "hat", f" {participle}"
        else:
            time = digits.pick(_NEAR_FUTURE)
            verb = f"(VP (MD will) (VP (VB {english}) {{}}))"
            finite, tail = "wird", f" {infinitive}"
        digits.close()
        tags = {"weather"}
        if front:
            tags.add("word_order_v2_inversion")
            german = f"{time[1]} {finite} es {place[1]}{tail}"
        else:
            german = f"es {finite} {time[1]} {place[1]}{tail}"
        if tense == "past":
            tags.add("perfect")
        if tense == "future":
            tags.add("future")
        return sentence(_weather(verb, place[0], time[0], front), german, tags, ".")

    return build


def _weather_adjective(digits: Digits, cells: tuple[str, ...]) -> Sentence:
    place = digits.pick(destinations("loc:city"))
    tense, times = digits.pick(
        (
            (("(VBZ is)", "ist"), clauses.times_named("modal", "today", "now")),
            (("(VBD was)", "war"), clauses.NEAR_PAST),
        )
    )
    time = digits.pick(times)
    front = digits.pick((False, True))
    digits.close()
    tags = {"weather", "predicative"}
    german = f"es {tense[1]} {time[1]} {place[1]} {cells[1]}"
    if front:
        tags.add("word_order_v2_inversion")
        german = f"{time[1]} {tense[1]} es {place[1]} {cells[1]}"
    english = _weather(f"(VP {tense[0]} {cells[0]} {{}})", place[0], time[0], front)
    return sentence(english, german, tags, ".")


# Weather is foretold for days, not for years.
_NEAR_FUTURE = tuple(
    pair
    for pair in clauses.TIMES["future"]
    if words(pair[0]).startswith(("tomorrow", "soon", "the day"))
)


# What even a village or a street has room for, and what towns have in the open.
_SMALL_SIGHTS = frozenset(
    "school library cinema restaurant supermarket bakery pharmacy church hotel shop café".split()
) | {"post office"}
_FEW = frozenset("zoo airport university station castle harbour stadium hospital".split()) | {
    "town hall",
    "post office",
}
_VALLEY_SIGHTS = frozenset("forest meadow field lake river".split())
_TOWN_SIGHTS = frozenset("park lake market zoo playground street".split())


def _existence(digits: Digits, noun: Noun) -> Sentence:
    """In the city there are three museums: es gibt with the accusative."""
    places = [
        place_phrase(e, g, LEXICON.nouns[n])
        for e, g, n in (
            ("in", "in", "city"),
            ("in", "in", "village"),
            ("in", "in", "street"),
            ("on", "auf", "island"),
            ("in", "in", "valley"),
        )
    ]
    towns = destinations("loc:town")
    if noun.english in _SMALL_SIGHTS:
        options = [*places, *towns]
    elif noun.word_class == "outdoor" and noun.english not in _TOWN_SIGHTS:
        options = [places[3], *places[4:][: noun.english in _VALLEY_SIGHTS]]
    else:
        options = [places[0], places[3], *towns]
    where = digits.pick(options)
    adjective = digits.pick((None, *LEXICON.adjectives_of.get(noun, ())))
    plural = digits.pick((False, True))
    if plural and noun.english in _FEW:
        raise RejectedError
    determiner = digits.pick(NUMBERS[:6]) if plural else digits.pick(("a", "no"))
    if adjective and adjective.english in ("Swiss", "German", "French", "Italian", "English"):
        raise RejectedError
    described = adjective is not None and adjective.english not in _PLAIN_LOOKS
    if determiner == "no" and (where in towns or described):
        raise RejectedError
    thing = cached_phrase(noun, determiner, plural, adjective)
    if noun.english in words(where[0]):
        raise RejectedError
    digits.close()
    be = be_forms(thing)[0]
    tags = {"existence", "word_order_v2_inversion", *thing.tags}
    english = thing.english
    if determiner == "no":
        tags.add("negation_kein")
        english = f"(NP (DT no) {english.partition(') ')[2]}"
    result = sentence(
        f"(S {where[0]} (NP (EX there)) (VP {be} {english}))",
        f"{where[1]} gibt es {thing.case('acc')}",
        tags,
        ".",
    )
    result.nominals.append(thing)
    return result


# What is said of people that one has as colleagues, bosses or neighbours.
_PRAISE = frozenset("new nice friendly good famous old young strict".split())


# What one may ask for or be without.
_PLAIN_LOOKS = frozenset(
    "new old big small good red blue green yellow white black brown grey warm German French".split()
)


def _having(form: str) -> Builder:
    def build(digits: Digits, noun: Noun) -> Sentence:
        subject = digits.pick(nominals.PRONOUNS + NAMES)
        if form == "number":
            thing = cached_phrase(
                noun, digits.pick(NUMBERS[: 1 if noun.word_class == "vehicle" else 3]), True, None
            )
        else:
            family = noun.word_class == "family"
            options = () if family else LEXICON.adjectives_of.get(noun, ())
            if is_person(noun):
                options = tuple(a for a in options if a.english in _PRAISE)
            elif form == "one":
                options = tuple(a for a in options if a.english not in ("right", "wrong", "secret"))
            else:
                options = tuple(a for a in options if a.english in _PLAIN_LOOKS)
            adjective = digits.pick((None, *options))
            determiner = "no" if form == "none" else "a"
            thing = cached_phrase(noun, determiner, False, adjective)
        digits.close()
        index = AGREEMENT_INDEX[subject.agreement]
        have, do = present("have")[index], present("do")[index]
        haben = ("habe", "hat", "haben")[index]
        tags = {"possession", *thing.tags}
        german = f"{subject.case('nom')} {haben} {thing.case('acc')}"
        mark = "."
        if form == "none":
            tags.add("negation_kein")
            english = f"(S {subject.english} (VP {do} (RB not) (VP (VB have) {thing.english})))"
        elif form == "question":
            tags.add("yes_no_question")
            english = f"(SQ {do} {subject.english} (VP (VB have) {thing.english}))"
            german = f"{haben} {subject.case('nom')} {thing.case('acc')}"
            mark = "?"
        else:
            english = f"(S {subject.english} (VP {have} {thing.english}))"
        result = sentence(english, german, tags, mark)
        result.nominals.append(thing)
        return result

    return build


def _pain(past: bool) -> Builder:
    def build(digits: Digits, noun: Noun) -> Sentence:
        plural = noun.english in ("knee", "arm", "leg", "tooth", "foot", "hand") and digits.pick(
            (False, True)
        )
        whose = digits.pick(tuple(p for p in clauses.POSSESSIVES if p[4:6] not in ("ou", "yo")))
        if noun.english == "tooth" and not plural:
            raise RejectedError
        time = digits.pick(clauses.NEAR_PAST if past else clauses.TIMES["progressive"][1:3])
        digits.close()
        part = cached_phrase(noun, whose, bool(plural), None)
        tags = {"separable_verb", "possessive"}
        if past:
            has = "haben" if plural else "hat"
            return sentence(
                f"(S {part.english} (VP (VBD hurt) {time[0]}))",
                f"{part.case('nom')} {has} {time[1]} wehgetan",
                tags | {"perfect"},
                ".",
            )
        verb = ("(VBP hurt)", "tun") if plural else ("(VBZ hurts)", "tut")
        return sentence(
            f"(S {part.english} (VP {verb[0]} {time[0]}))",
            f"{part.case('nom')} {verb[1]} {time[1]} weh",
            tags,
            ".",
        )

    return build


def _register_others() -> None:
    weather = table(lexicon_words.WEATHER_TABLE)
    for tense in ("present", "past", "future"):
        add("weather", 21, weather, _weather_verb(tense))
    add("weather_adjective", 28, table(lexicon_words.WEATHER_ADJECTIVES), _weather_adjective)
    sights = [n for n in LEXICON.classes["building"] if n.english != "house"]
    sights += [
        n
        for n in LEXICON.classes["outdoor"]
        if n.english not in ("city", "village", "sea", "island", "valley", "street")
    ]
    add("existence", 147, sights, _existence)
    things = [
        n
        for n in LEXICON.nouns.values()
        if (restrictions.ownable(n) or n.word_class == "family")
        and not n.mass
        and n.english not in ("mother", "father", "hairdresser", "guest", "mistake", "soup")
        and n.word_class not in ("room", "idea", "footwear")
    ]
    relatives = [n for n in things if n.word_class in ("family", "pet", "vehicle", "instrument")]
    add("having", 43, [n for n in things if n.word_class != "family"], _having("one"))
    add("having", 37, things, _having("none"))
    add("having", 37, things, _having("question"))
    add("having", 30, relatives, _having("number"))
    body = [n for n in LEXICON.classes["body"] if n.english not in ("hand",)]
    add("pain", 9, body, _pain(False))
    add("pain", 9, body, _pain(True))


_register_infinitives()
_register_others()
