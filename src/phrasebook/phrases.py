"""Clauses and verb phrases, and their word order in both languages."""

from __future__ import annotations

from dataclasses import dataclass, field

from . import morphology
from .lexicon import Frame, Noun, Verb
from .nominals import Nominal


@dataclass(frozen=True, slots=True)
class Modal:
    """A modal verb: English forms for I, he, they; German forms for ich/er and the plural."""

    english: tuple[str, str, str]
    english_negated: tuple[str, str, str]
    question_auxiliary: tuple[str, str, str]
    question_rest: str
    singular: str
    plural: str


def _modal(english: str, negated: str, question: str, german: str) -> Modal:
    def forms(text: str) -> tuple[str, str, str]:
        items = text.split("/")
        return (items[0], items[min(1, len(items) - 1)], items[-1] if len(items) == 3 else items[0])

    auxiliary, _, rest = question.partition(" ")
    singular, plural = german.split()
    return Modal(forms(english), forms(negated), forms(auxiliary), rest, singular, plural)


MODALS = {
    "can": _modal("can", "cannot", "can", "kann können"),
    "must": _modal("must", "", "do/does have to", "muss müssen"),
    "want": _modal(
        "want to/wants to", "do not want to/does not want to", "do/does want to", "will wollen"
    ),
    "should": _modal("should", "should not", "should", "sollte sollten"),
    "would like": _modal("would like to", "", "would like to", "möchte möchten"),
    "need not": _modal("", "do not have to/does not have to", "", "muss müssen"),
    "may": _modal(
        "am allowed to/is allowed to/are allowed to",
        "am not allowed to/is not allowed to/are not allowed to",
        "am/is/are allowed to",
        "darf dürfen",
    ),
}
PAST_MODALS = {
    "was able to": _modal(
        "was able to/was able to/were able to",
        "was not able to/was not able to/were not able to",
        "was/was/were able to",
        "konnte konnten",
    ),
    "had to": _modal("had to", "did not have to", "did have to", "musste mussten"),
    "wanted": _modal("wanted to", "did not want to", "did want to", "wollte wollten"),
}

_BE = {"1sg": "am", "3sg": "is", "pl": "are"}
_BE_PAST = {"1sg": "was", "3sg": "was", "pl": "were"}
_HAVE = {"1sg": "have", "3sg": "has", "pl": "have"}
_PERSON_INDEX = {"1sg": 0, "3sg": 1, "pl": 2}
_AUXILIARY = {
    "haben": ("habe", "hat", "haben"),
    "sein": ("bin", "ist", "sind"),
    "werden": ("werde", "wird", "werden"),
}


@dataclass(slots=True)
class Clause:
    """A clause before either language has ordered its words."""

    subject: Nominal
    frame: Frame
    tense: str = "present"
    modal: Modal | None = None
    accusative: Nominal | None = None
    dative: Nominal | None = None
    prepositional: Nominal | None = None
    bare: Noun | None = None
    time: tuple[str, str] | None = None
    clock: tuple[str, str] | None = None
    adverb: tuple[str, str] | None = None
    manner: tuple[str, str] | None = None
    place: tuple[str, str] | None = None
    direction: tuple[str, str] | None = None
    negated: bool = False
    gladly: bool = False
    tags: set[str] = field(default_factory=set)

    # English ---------------------------------------------------------------------------------

    def _english_verb(self) -> tuple[str, str]:
        """The auxiliary (empty when there is none) and the main verb."""
        verb = self.frame.verb
        agreement = self.subject.agreement
        if self.gladly:
            return "", "like" if agreement != "3sg" else "likes"
        if self.tense == "modal" and self.modal:
            return self.modal.english[_PERSON_INDEX[agreement]], verb.english
        if self.tense == "progressive":
            return _BE[agreement], verb.ing
        if self.tense == "perfect":
            return _HAVE[agreement], verb.perfect
        if self.tense == "future":
            return "will", verb.english
        if self.tense == "past":
            return "", verb.past
        return "", verb.third if agreement == "3sg" else verb.english

    def _do(self) -> str:
        if self.tense == "past":
            return "did"
        return "does" if self.subject.agreement == "3sg" else "do"

    def english_predicate(self, main: str, gap: str = "") -> str:
        """Everything from the main verb on; *gap* names a complement moved elsewhere."""
        verb = self.frame.verb
        words = [main]
        if self.gladly:
            words.append(verb.ing)
        direct = self.accusative if gap != "acc" else None
        indirect = self.dative if gap != "dat" else None
        if verb.fixed:
            words.append(verb.fixed)
        if verb.movable and not (direct and direct.pronoun):
            words.append(verb.movable)
        if indirect and not self.frame.to:
            if direct and direct.pronoun:
                words += [direct.english_object, "to", indirect.english_object]
                direct = indirect = None
            else:
                words.append(indirect.english_object)
        if direct:
            words.append(direct.english_object)
            if verb.movable and direct.pronoun:
                words.append(verb.movable)
        if self.frame.to:
            if indirect:
                words += ["to", indirect.english_object]
            elif gap == "dat":
                words.append("to")
        if self.bare:
            words.append(bare_english(self.bare))
        if self.prepositional and gap != "prep":
            words.append(self.prepositional.english_object)
        for adverbial in (self.direction, self.manner, self.place):
            if adverbial:
                words.append(adverbial[0])
        return " ".join(words)

    def english_statement(self, time: bool = True) -> str:
        """Subject first: the order of statements and of every subordinate clause."""
        return f"{self.subject.english} {self.english_verb_phrase(time)}"

    def english_verb_phrase(self, time: bool = True, gap: str = "") -> str:
        """The finite verb and all that follows it in a statement."""
        aux, main = self._english_verb()
        words = []
        if self.negated:
            if self.tense == "modal" and self.modal:
                words.append(self.modal.english_negated[_PERSON_INDEX[self.subject.agreement]])
            elif aux:
                words += [aux, "not"]
            else:
                words += [self._do(), "not"]
                main = "like" if self.gladly else self.frame.verb.english
        elif aux:
            words.append(aux)
        if self.adverb:
            words.append(self.adverb[0])
        words.append(self.english_predicate(main, gap))
        words += self._english_times(time)
        return " ".join(words)

    def _english_times(self, time: bool) -> list[str]:
        words = []
        if self.clock:
            words.append(self.clock[0])
        if time and self.time:
            words.append(self.time[0])
        return words

    def english_question(self, gap: str = "", time: bool = True) -> str:
        """The auxiliary before the subject, with do-support."""
        aux, main = self._english_verb()
        if self.tense == "modal" and self.modal:
            aux = self.modal.question_auxiliary[_PERSON_INDEX[self.subject.agreement]]
            main = f"{self.modal.question_rest} {main}".strip()
        elif not aux:
            aux = self._do()
            main = "like" if self.gladly else self.frame.verb.english
        words = [aux, self.subject.english]
        if self.adverb:
            words.append(self.adverb[0])
        words.append(self.english_predicate(main, gap))
        words += self._english_times(time)
        return " ".join(words)

    def english_infinitive(self) -> str:
        """The bare infinitive with its complements."""
        words = [self.english_predicate(self.frame.verb.english)]
        words += self._english_times(True)
        return " ".join(words)

    # German ----------------------------------------------------------------------------------

    def _german_finite(self) -> tuple[str, list[str], bool]:
        """The finite verb, the words that close the clause, and whether a prefix is among them."""
        verb = self.frame.verb
        person = _PERSON_INDEX[self.subject.agreement]
        joined = verb.prefix + verb.infinitive
        if self.tense == "modal" and self.modal:
            finite = self.modal.plural if person == 2 else self.modal.singular
            return finite, [joined], False
        if self.tense in ("past", "perfect"):
            return _AUXILIARY[verb.auxiliary][person], [verb.participle], False
        if self.tense == "future":
            return _AUXILIARY["werden"][person], [joined], False
        finite = verb.present[person]
        return finite, [verb.prefix.strip()] if verb.prefix else [], bool(verb.prefix)

    def _reflexive(self) -> str:
        if not self.frame.reflexive:
            return ""
        return self.subject.reflexive[0 if self.frame.reflexive == "acc" else 1]

    def german_middle(self, gap: str = "", time: bool = True, reflexive: bool = True) -> list[str]:
        """Everything between the finite verb (or subject) and the end of the clause."""
        direct = self.accusative if gap != "acc" else None
        indirect = self.dative if gap != "dat" else None
        words: list[str] = []
        if reflexive and self.frame.reflexive:
            words.append(self._reflexive())
        if direct and direct.pronoun:
            words.append(direct.case("acc"))
            direct = None
        if indirect and indirect.pronoun:
            words.append(indirect.case("dat"))
            indirect = None
        when = [self.time[1]] if time and self.time else []
        if self.clock:
            when.append(self.clock[1])
        sentence_adverb = self.adverb[1] if self.adverb else ""
        # A person in the dative is old news and precedes the time; a definite thing does so
        # where the clause is negated, and before the adverbs schon, nie, gerade, endlich.
        if indirect:
            words.append(indirect.case("dat"))
        known = [direct.case("acc")] if direct and direct.definite else []
        if self.negated or self.tense == "perfect":
            words += known + when
            known = []
        else:
            words += when
        if sentence_adverb:
            words.append(sentence_adverb)
        words += known
        late = [direct.case("acc")] if direct and not direct.definite else []
        if self.negated and not any(word.startswith("kein") for word in late):
            words.append("nicht")
        if self.gladly:
            words.append("gern")
        if self.manner:
            words.append(self.manner[1])
        if self.place:
            words.append(self.place[1])
        words += late
        if self.prepositional and gap != "prep":
            preposition = self.frame.preposition
            phrase = self.prepositional.case(self.frame.preposition_case)
            words.append(morphology.contract(preposition, phrase))
        if self.direction:
            words.append(self.direction[1])
        if self.bare:
            words.append(self.bare.german)
        return words

    def german_main(self, front: str = "", gap: str = "", time: bool = True) -> str:
        """Verb second; the subject leads unless *front* takes the first place."""
        finite, tail, _ = self._german_finite()
        subject = self.subject.case("nom")
        if not front:
            return " ".join([subject, finite, *self.german_middle(gap, time), *tail])
        return " ".join([front, *self._inverted(finite, gap, time), *tail])

    def _inverted(self, finite: str, gap: str, time: bool) -> list[str]:
        subject = self.subject.case("nom")
        if self.frame.reflexive and not self.subject.pronoun:
            # A reflexive pronoun slips in before a full noun phrase.
            middle = self.german_middle(gap, time, reflexive=False)
            return [finite, self._reflexive(), subject, *middle]
        return [finite, subject, *self.german_middle(gap, time)]

    def german_question(self, front: str = "", gap: str = "", time: bool = True) -> str:
        """Verb first, or second behind a question word."""
        finite, tail, _ = self._german_finite()
        words = [front] if front else []
        return " ".join([*words, *self._inverted(finite, gap, time), *tail])

    def german_predicate(self, gap: str = "") -> str:
        """The finite verb and what follows it, without the subject."""
        finite, tail, _ = self._german_finite()
        return " ".join([finite, *self.german_middle(gap), *tail])

    def german_final(self, gap: str = "", subject: bool = True) -> str:
        """Verb last: the order of subordinate clauses."""
        finite, tail, separated = self._german_finite()
        words = []
        if subject and self.frame.reflexive and not self.subject.pronoun:
            # As in main clauses, the reflexive pronoun slips in before a full noun phrase.
            words += [self._reflexive(), self.subject.case("nom")]
            words += self.german_middle(gap, reflexive=False)
        else:
            words += [self.subject.case("nom")] if subject else []
            words += self.german_middle(gap)
        if separated:
            words.append(self.frame.verb.prefix + finite)
        else:
            words += [*tail, finite]
        return " ".join(words)

    def german_infinitive(self, zu: bool) -> str:
        """The infinitive at the end, with zu (inside a separable verb) or without."""
        verb = self.frame.verb
        words = self.german_middle()
        if not zu:
            words.append(verb.prefix + verb.infinitive)
        elif verb.prefix:
            glue = "" if not verb.prefix.endswith(" ") else " "
            head = verb.prefix.strip()
            words.append(f"{head}{glue}zu{glue}{verb.infinitive}")
        else:
            words.append(f"zu {verb.infinitive}")
        return " ".join(words)


def bare_english(noun: Noun) -> str:
    """The English of an object that German leaves without an article."""
    return f"the {noun.english}" if noun.word_class == "instrument" else noun.english


def verb_tags(frame: Frame) -> set[str]:
    """Phenomena that come with a verb, whatever the construction."""
    tags = set()
    if frame.verb.prefix:
        tags.add("separable_verb")
    if frame.dative and frame.accusative:
        tags.add("ditransitive")
    elif frame.dative:
        tags.add("dative_verb")
    if frame.prepositional:
        tags.add("prepositional_object")
    if frame.reflexive:
        tags.add("reflexive")
    return tags


def is_ambiguous_past(verb: Verb) -> bool:
    """Whether English spells present and past alike (put, cut, read)."""
    return verb.past == verb.english
