# ruff: noqa: PT018 (the tables read best with one case a line)
"""The phrasebook: inflection by hand, invariants of the stream, and the splits."""

from __future__ import annotations

import re
import subprocess
import sys
import tracemalloc
from collections import Counter
from dataclasses import dataclass
from itertools import islice

import pytest

from phrasebook import (
    CAPACITY,
    PHENOMENA,
    Pair,
    generate,
    lemma_counts,
    nominals,
    phrases,
    sampling,
)
from phrasebook import morphology as m
from phrasebook.grammar import Sentence
from phrasebook.lexicon import load
from phrasebook.nominals import noun_phrase
from phrasebook.phrases import Clause

LEXICON = load()


@dataclass(frozen=True)
class TrainSample:
    """A large training sample: its pairs, and the words their combinations are made of."""

    pairs: list[Pair]
    words: Counter[str]


def _pair(sentence: Sentence) -> Pair:
    tags = tuple(sorted(sentence.tags or {"plain"}))
    return Pair(sentence.english, sentence.german, tags, sentence.tree)


def _combined_words(sentence: Sentence) -> set[str]:
    """Verbs, nouns and adjectives of a sentence that may form a reserved combination."""
    found = set()
    phrases_of = list(sentence.nominals)
    for clause in sentence.clauses:
        found.add(f"verb {clause.frame.verb.name}")
        parts = (clause.subject, clause.accusative, clause.dative, clause.prepositional)
        phrases_of += [part for part in parts if part is not None]
    for nominal in phrases_of:
        for noun in (nominal.noun, nominal.second):
            if noun is not None:
                found.add(f"noun {noun.english}")
        if nominal.adjective is not None:
            found.add(f"adjective {nominal.adjective.english}")
    return found


@pytest.fixture(scope="module")
def train_sample(thorough: bool) -> TrainSample:
    result = TrainSample([], Counter())
    for sentence in islice(sampling.sentences("train", 1), 100_000 if thorough else 40_000):
        assert "new_combination" not in sentence.tags
        result.pairs.append(_pair(sentence))
        result.words.update(_combined_words(sentence))
    return result


@pytest.fixture(scope="module")
def train(train_sample: TrainSample) -> list[Pair]:
    return train_sample.pairs


@pytest.fixture(scope="module")
def valid() -> list[Pair]:
    return list(generate("valid", 1_000, 1))


@pytest.fixture(scope="module")
def test_sentences() -> list[Sentence]:
    return list(islice(sampling.sentences("test", 1), 2_000))


@pytest.fixture(scope="module")
def test_split(test_sentences: list[Sentence]) -> list[Pair]:
    return [_pair(sentence) for sentence in test_sentences]


# Inflection ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("noun", "determiner", "plural", "adjective", "expected"),
    [
        ("dog", "the", False, "old", "der alte Hund|den alten Hund|dem alten Hund"),
        ("dog", "a", False, "big", "ein großer Hund|einen großen Hund|einem großen Hund"),
        ("dog", "the", True, "big", "die großen Hunde|die großen Hunde|den großen Hunden"),
        (
            "dog",
            "number:three:drei",
            True,
            "big",
            "drei große Hunde|drei große Hunde|drei großen Hunden",
        ),
        ("dog", "bare", True, "big", "große Hunde|große Hunde|großen Hunden"),
        (
            "cat",
            "a",
            False,
            "black",
            "eine schwarze Katze|eine schwarze Katze|einer schwarzen Katze",
        ),
        ("cat", "own:my:mein", False, None, "meine Katze|meine Katze|meiner Katze"),
        (
            "book",
            "this",
            False,
            "interesting",
            "dieses interessante Buch|dieses interessante Buch|diesem interessanten Buch",
        ),
        (
            "book",
            "own:our:unser",
            False,
            "new",
            "unser neues Buch|unser neues Buch|unserem neuen Buch",
        ),
        ("bag", "own:our:unser", False, None, "unsere Tasche|unsere Tasche|unserer Tasche"),
        ("milk", "bare", False, "fresh", "frische Milch|frische Milch|frischer Milch"),
        ("bread", "bare", False, "fresh", "frisches Brot|frisches Brot|frischem Brot"),
        ("cheese", "bare", False, "expensive", "teurer Käse|teuren Käse|teurem Käse"),
        ("car", "a", False, "expensive", "ein teures Auto|ein teures Auto|einem teuren Auto"),
        ("tower", "the", False, "high", "der hohe Turm|den hohen Turm|dem hohen Turm"),
        (
            "cellar",
            "a",
            False,
            "dark",
            "ein dunkler Keller|einen dunklen Keller|einem dunklen Keller",
        ),
        ("apple", "a", False, "sour", "ein saurer Apfel|einen sauren Apfel|einem sauren Apfel"),
        ("student", "the", False, None, "der Student|den Studenten|dem Studenten"),
        ("neighbour", "a", False, None, "ein Nachbar|einen Nachbarn|einem Nachbarn"),
        (
            "colleague",
            "the",
            False,
            "tired",
            "der müde Kollege|den müden Kollegen|dem müden Kollegen",
        ),
        ("watch", "a", False, "Swiss", "eine Schweizer Uhr|eine Schweizer Uhr|einer Schweizer Uhr"),
        ("car", "no", False, "red", "kein rotes Auto|kein rotes Auto|keinem roten Auto"),
        ("apple", "no", True, None, "keine Äpfel|keine Äpfel|keinen Äpfeln"),
        ("car", "the", True, None, "die Autos|die Autos|den Autos"),
    ],
)
def test_noun_phrases_decline(
    noun: str, determiner: str, plural: bool, adjective: str | None, expected: str
) -> None:
    word = next((a for a in LEXICON.adjectives if a.english == adjective), None)
    phrase = noun_phrase(LEXICON.nouns[noun], determiner, plural, word)
    assert "|".join(phrase.german) == expected


@pytest.mark.parametrize(
    ("preposition", "phrase", "expected"),
    [
        ("in", "dem Park", "im Park"),
        ("in", "das Kino", "ins Kino"),
        ("in", "den Wald", "in den Wald"),
        ("an", "dem Strand", "am Strand"),
        ("zu", "dem Arzt", "zum Arzt"),
        ("zu", "der Brücke", "zur Brücke"),
        ("von", "dem Schloss", "vom Schloss"),
        ("bei", "dem Chef", "beim Chef"),
        ("auf", "das Sofa", "auf das Sofa"),
        ("in", "dem", "in dem"),
    ],
)
def test_prepositions_contract(preposition: str, phrase: str, expected: str) -> None:
    assert m.contract(preposition, phrase) == expected


@pytest.mark.parametrize(
    ("noun", "expected"),
    [
        ("man", "Mannes"),
        ("teacher", "Lehrers"),
        ("woman", "Frau"),
        ("child", "Kindes"),
        ("student", "Studenten"),
        ("guest", "Gastes"),
        ("boss", "Chefs"),
    ],
)
def test_genitive(noun: str, expected: str) -> None:
    assert LEXICON.nouns[noun].form(False, "gen") == expected


def _clause(
    verb: str, tense: str, subject: nominals.Nominal = nominals.HE, **parts: object
) -> Clause:
    frame = next(f for f in LEXICON.frames if f"{f.verb.prefix}{f.verb.infinitive}" == verb)
    return Clause(subject, frame, tense, **parts)  # type: ignore[arg-type]


_ROOM = noun_phrase(LEXICON.nouns["room"], "the")
_GUEST = noun_phrase(LEXICON.nouns["guest"], "the")
_NEIGHBOUR = noun_phrase(LEXICON.nouns["neighbour"], "the")


@pytest.mark.parametrize(
    ("clause", "form", "expected"),
    [
        (_clause("aufräumen", "present", accusative=_ROOM), "main", "er räumt das Zimmer auf"),
        (_clause("aufräumen", "present", accusative=_ROOM), "final", "er das Zimmer aufräumt"),
        (_clause("aufräumen", "past", accusative=_ROOM), "main", "er hat das Zimmer aufgeräumt"),
        (_clause("aufräumen", "past", accusative=_ROOM), "final", "er das Zimmer aufgeräumt hat"),
        (
            _clause("aufräumen", "future", accusative=_ROOM),
            "main",
            "er wird das Zimmer aufräumen",
        ),
        (_clause("aufräumen", "present", accusative=_ROOM), "zu", "das Zimmer aufzuräumen"),
        (
            _clause("aufräumen", "present", accusative=_ROOM),
            "question",
            "räumt er das Zimmer auf",
        ),
        (_clause("einladen", "present", accusative=_GUEST), "main", "er lädt den Gast ein"),
        (
            _clause("einladen", "present", nominals.I, accusative=_GUEST),
            "main",
            "ich lade den Gast ein",
        ),
        (
            _clause("anrufen", "past", nominals.WE, accusative=_GUEST),
            "main",
            "wir haben den Gast angerufen",
        ),
        (_clause("zuhören", "present", dative=_GUEST), "main", "er hört dem Gast zu"),
        (_clause("helfen", "past", dative=_GUEST), "final", "er dem Gast geholfen hat"),
        (_clause("aufstehen", "past"), "main", "er ist aufgestanden"),
        (_clause("einschlafen", "past", nominals.I), "main", "ich bin eingeschlafen"),
        (_clause("schwimmen", "past", nominals.THEY), "final", "sie geschwommen sind"),
        (_clause("laufen", "present"), "main", "er läuft"),
        (_clause("Rad fahren", "present"), "final", "er Rad fährt"),
        (_clause("Rad fahren", "present"), "zu", "Rad zu fahren"),
        (_clause("Rad fahren", "past", nominals.SHE), "main", "sie ist Rad gefahren"),
        (_clause("ausruhen", "present", nominals.I), "main", "ich ruhe mich aus"),
        (_clause("ausruhen", "present", nominals.WE), "final", "wir uns ausruhen"),
        (_clause("ausruhen", "past", nominals.YOU), "question", "haben Sie sich ausgeruht"),
        (_clause("lächeln", "present", nominals.I), "main", "ich lächle"),
        (_clause("schlafen", "past", negated=True), "main", "er hat nicht geschlafen"),
        (
            _clause("aufräumen", "past", accusative=_ROOM, negated=True, time=("", "gestern")),
            "main",
            "er hat das Zimmer gestern nicht aufgeräumt",
        ),
        (
            _clause(
                "schlafen",
                "past",
                time=("", "gestern"),
                manner=("", "gut"),
                place=("", "im Garten"),
            ),
            "main",
            "er hat gestern gut im Garten geschlafen",
        ),
        (
            _clause("verlassen", "present", _NEIGHBOUR, prepositional=_GUEST),
            "final",
            "sich der Nachbar auf den Gast verlässt",
        ),
        (
            _clause("bringen", "future", dative=_GUEST, accusative=_ROOM, time=("", "morgen")),
            "main",
            "er wird dem Gast morgen das Zimmer bringen",
        ),
        (
            _clause("aufräumen", "modal", accusative=_ROOM, modal=phrases.MODALS["must"]),
            "final",
            "er das Zimmer aufräumen muss",
        ),
    ],
)
def test_clauses_order_their_words(clause: Clause, form: str, expected: str) -> None:
    order = {
        "main": clause.german_main,
        "final": clause.german_final,
        "question": clause.german_question,
        "zu": lambda: clause.german_infinitive(True),
    }
    assert order[form]() == expected


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (m.a_or_an("apple"), "an"),
        (m.a_or_an("honest man"), "an"),
        (m.a_or_an("hour"), "an"),
        (m.a_or_an("university"), "a"),
        (m.a_or_an("useful book"), "a"),
        (m.a_or_an("unusual idea"), "an"),
        (m.a_or_an("uncle"), "an"),
        (m.a_or_an("umbrella"), "an"),
        (m.english_third_person("carry"), "carries"),
        (m.english_third_person("play"), "plays"),
        (m.english_third_person("watch"), "watches"),
        (m.english_past("stop"), "stopped"),
        (m.english_past("carry"), "carried"),
        (m.english_ing("die"), "dying"),
        (m.english_ing("swim"), "swimming"),
        (m.english_ing("write"), "writing"),
        (m.english_plural("baby"), "babies"),
        (m.english_plural("box"), "boxes"),
        (m.relative_pronoun("pl", "dat"), "denen"),
        (m.personal_pronoun("f", "acc"), "sie"),
    ],
)
def test_small_words(actual: str, expected: str) -> None:
    assert actual == expected


# The lexicon ------------------------------------------------------------------------------------


def test_lexicon_is_large_and_unambiguous() -> None:
    assert sum(lemma_counts().values()) >= 600
    assert len({n.german for n in LEXICON.nouns.values()}) == len(LEXICON.nouns)
    assert len({a.german for a in LEXICON.adjectives}) == len(LEXICON.adjectives)


# The stream -------------------------------------------------------------------------------------


def test_prefix_property_and_determinism() -> None:
    for split in ("train", "valid", "test"):
        short = list(generate(split, 50, 7))  # type: ignore[arg-type]
        assert short == list(generate(split, 200, 7))[:50]  # type: ignore[arg-type]
    assert list(generate("train", 50, 7)) != list(generate("train", 50, 8))


def test_same_in_another_process() -> None:
    script = (
        "from phrasebook import generate\n"
        "import hashlib\n"
        "print(hashlib.sha256(repr(list(generate('train', 300, 5))).encode()).hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def test_distinct_and_a_function_of_the_english(train: list[Pair]) -> None:
    seen: dict[str, str] = {}
    for pair in train:
        assert pair.source not in seen, (pair, seen[pair.source])
        seen[pair.source] = pair.target
    for pair in generate("train", 2_000, 3):
        assert seen.get(pair.source, pair.target) == pair.target


def test_splits_are_disjoint_on_both_sides(
    train: list[Pair], valid: list[Pair], test_split: list[Pair]
) -> None:
    for side in ("source", "target"):
        texts = [{getattr(p, side) for p in split} for split in (train, valid, test_split)]
        assert not texts[0] & texts[1]
        assert not texts[0] & texts[2]
        assert not texts[1] & texts[2]


def test_held_out_combinations(test_split: list[Pair]) -> None:
    share = sum("new_combination" in p.phenomena for p in test_split) / len(test_split)
    assert 0.2 <= share <= 0.4


def test_parts_of_held_out_combinations_are_common_in_training(
    train_sample: TrainSample, test_sentences: list[Sentence]
) -> None:
    held_out = 0
    for sentence in test_sentences[:1_000]:
        if "new_combination" not in sentence.tags:
            continue
        held_out += 1
        for word in _combined_words(sentence):
            share = train_sample.words[word] / len(train_sample.pairs)
            assert share >= 1 / 20_000, (word, sentence.english)
    assert held_out >= 200


def test_every_tag_has_its_share(test_split: list[Pair]) -> None:
    counts = Counter(tag for pair in test_split for tag in pair.phenomena)
    assert set(counts) == set(PHENOMENA)
    for tag in PHENOMENA:
        assert counts[tag] / len(test_split) >= 0.02, tag


def test_every_lemma_occurs(train: list[Pair]) -> None:
    words = Counter(word for pair in train for word in re.findall(r"[\w-]+", pair.target))
    for noun in LEXICON.nouns.values():
        forms = {noun.form(plural, case) for plural in (False, True) for case in m.CASES}
        assert sum(words[form] for form in forms) >= len(train) / 5_000, noun.english
    lengths = [len(pair.source.split()) for pair in train]
    assert 8 <= sum(lengths) / len(lengths) <= 11
    assert min(lengths) >= 2 and max(lengths) <= 24


def test_orthography(train: list[Pair]) -> None:
    subordinate = re.compile(r"(?<!,) (dass|weil|obwohl|ob|wenn|um) ")
    # The reflexive pronoun precedes a full noun phrase: "dass sich der Lehrer freut".
    late_reflexive = re.compile(
        r"(?:dass|ob|weil|obwohl|wenn|bevor|nachdem) (?:der|die|das|mein\w*) \w+ sich "
    )
    article = re.compile(r"\b(a|an) (\w+)", re.IGNORECASE)
    for pair in train:
        for text in (pair.source, pair.target):
            assert "  " not in text and text == text.strip()
            assert text[0].isupper() and text[-1] in ".?" and " ." not in text and " ," not in text
        assert pair.source[-1] == pair.target[-1]
        # "ihm um acht Uhr" is no infinitive clause.
        match = subordinate.search(pair.target)
        assert not match or " um " in match[0], pair
        assert not late_reflexive.search(pair.target), pair
        assert " its " not in pair.source, pair
        for found, word in article.findall(pair.source):
            assert found.lower() == m.a_or_an(word), pair
        if "relative_clause" in pair.phenomena:
            assert re.search(r", (\w+ )?(der|die|das|den|dem|denen) ", pair.target), pair


def test_memory_is_constant() -> None:
    def peak(count: int) -> int:
        tracemalloc.start()
        for _ in generate("train", count, 4):
            pass
        result = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return result

    small, large = peak(500), peak(2_000)
    assert large < small + 4_000_000


def test_requests_beyond_capacity_are_refused() -> None:
    assert CAPACITY["train"] >= 10_000_000
    with pytest.raises(ValueError, match="capacity of 20000000"):
        generate("train", CAPACITY["train"] + 1, 1)
    with pytest.raises(ValueError, match="unknown split"):
        generate("dev", 1, 1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="negative"):
        generate("train", -1, 1)
