"""Clauses and verb phrases, and their word order in both languages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from . import morphology
from .lexicon import Frame, Noun, Verb
from .nominals import Nominal, english_noun_phrase
from .penn import prepositional, present, to_infinitive

# English trees that hold other trees: {vp} is the VP of the main verb, {more} what is said of the
# modal verb rather than of the main verb.
_PLAIN = "{vp}"
_TO = to_infinitive("{vp}") + "{more}"


@dataclass(frozen=True, slots=True)
class Modal:
    """A modal verb: English forms for I, he, they; German forms for ich/er and the plural.

    *rest* follows the English verb; *auxiliary* and *auxiliary_rest* take the place of both in
    questions and before *not*.
    """

    english: tuple[str, str, str]
    rest: str
    auxiliary: tuple[str, str, str]
    auxiliary_rest: str
    singular: str
    plural: str


_Verb = tuple[tuple[str, str, str], str]


def _modal(plain: _Verb, supported: _Verb, german: str) -> Modal:
    singular, plural = german.split()
    return Modal(*plain, *supported, singular, plural)


def _always(form: str) -> tuple[str, str, str]:
    return form, form, form


BE_PAST = ("(VBD was)", "(VBD was)", "(VBD were)")
_CAN, _SHOULD = (_always("(MD can)"), _PLAIN), (_always("(MD should)"), _PLAIN)
_HAVE_TO = (present("do"), f"(VP (VB have) {_TO})")
_WOULD_LIKE = (_always("(MD would)"), f"(VP (VB like) {_TO})")
_ALLOWED = (present("be"), f"(VP (VBN allowed) {_TO})")
_ABLE = (BE_PAST, f"(ADJP (JJ able) {_TO})")

MODALS = {
    "can": _modal(_CAN, _CAN, "kann können"),
    "must": _modal((_always("(MD must)"), _PLAIN), _HAVE_TO, "muss müssen"),
    "want": _modal((present("want"), _TO), (present("do"), f"(VP (VB want) {_TO})"), "will wollen"),
    "should": _modal(_SHOULD, _SHOULD, "sollte sollten"),
    "would like": _modal(_WOULD_LIKE, _WOULD_LIKE, "möchte möchten"),
    "need not": _modal(_HAVE_TO, _HAVE_TO, "muss müssen"),
    "may": _modal(_ALLOWED, _ALLOWED, "darf dürfen"),
}
PAST_MODALS = {
    "was able to": _modal(_ABLE, _ABLE, "konnte konnten"),
    "had to": _modal(
        (_always("(VBD had)"), _TO),
        (_always("(VBD did)"), f"(VP (VB have) {_TO})"),
        "musste mussten",
    ),
    "wanted": _modal(
        (_always("(VBD wanted)"), _TO),
        (_always("(VBD did)"), f"(VP (VB want) {_TO})"),
        "wollte wollten",
    ),
}

# What stays by a verb, by its words; {} is where the objects go when they belong to a preposition.
_FIXED = {
    "up": "(PRT (RP up))",
    "along": "(PRT (RP along))",
    "out": "(PRT (RP out))",
    "asleep": "(ADJP (JJ asleep))",
    "place": "(NP (NN place))",
    "for": "(PP (IN for){})",
    "of": "(PP (IN of){})",
    "about": "(PP (IN about){})",
    "with": "(PP (IN with){})",
    "on": "(PP (IN on){})",
    "to": "(PP (TO to){})",
    "forward to": "(ADVP (RB forward)) (PP (TO to){})",
    "used to": "(ADJP (JJ used) (PP (TO to){}))",
    "part in": "(NP (NN part)) (PP (IN in){})",
    "care of": "(NP (NN care)) (PP (IN of){})",
    "in love with": "(PP (IN in) (NP (NN love))) (PP (IN with){})",
}

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

    def _english_verb(self, supported: bool) -> tuple[str, str, str]:
        """The auxiliary (empty when there is none), the main verb, and the tree around its VP.

        A clause that is *supported*, a question or negated, always has an auxiliary.
        """
        verb = self.frame.verb
        person = _PERSON_INDEX[self.subject.agreement]
        if self.tense == "modal" and self.modal:
            modal, main = self.modal, f"(VB {verb.english})"
            if supported:
                return modal.auxiliary[person], main, modal.auxiliary_rest
            return modal.english[person], main, modal.rest
        if self.gladly:
            if supported:
                return present("do")[person], "(VB like)", _PLAIN
            return "", present("like")[person], _PLAIN
        if self.tense == "progressive":
            return present("be")[person], f"(VBG {verb.ing})", _PLAIN
        if self.tense == "perfect":
            return present("have")[person], f"(VBN {verb.perfect})", _PLAIN
        if self.tense == "future":
            return "(MD will)", f"(VB {verb.english})", _PLAIN
        if supported:
            do = "(VBD did)" if self.tense == "past" else present("do")[person]
            return do, f"(VB {verb.english})", _PLAIN
        if self.tense == "past":
            return "", f"(VBD {verb.past})", _PLAIN
        return "", f"(VBZ {verb.third})" if person == 1 else f"(VBP {verb.english})", _PLAIN

    def english_predicate(self, main: str, gap: str = "", after: Sequence[str] = ()) -> str:
        """The VP of the main verb; *gap* names a complement moved elsewhere."""
        verb = self.frame.verb
        direct = self.accusative if gap != "acc" else None
        indirect = self.dative if gap != "dat" else None
        objects = []
        if verb.movable and not (direct and direct.pronoun):
            objects.append(f"(PRT (RP {verb.movable}))")
        if indirect and not self.frame.to:
            if direct and direct.pronoun:
                objects.append(direct.english_object)
                objects.append(prepositional("to", indirect.english_object))
                direct = indirect = None
            else:
                objects.append(indirect.english_object)
        if direct:
            objects.append(direct.english_object)
            if verb.movable and direct.pronoun:
                objects.append(f"(PRT (RP {verb.movable}))")
        if self.frame.to:
            if indirect:
                objects.append(prepositional("to", indirect.english_object))
            elif gap == "dat":
                objects.append("(PP (TO to))")
        if self.bare:
            objects.append(bare_english(self.bare))
        if self.prepositional and gap != "prep":
            objects.append(self.prepositional.english_object)
        words = [f"(VBG {verb.ing})" if self.gladly else main]
        fixed = _FIXED[verb.fixed] if verb.fixed else ""
        if "{}" in fixed:
            words.append(fixed.format("".join(f" {phrase}" for phrase in objects)))
        elif fixed:
            words += [fixed, *objects]
        else:
            words += objects
        for adverbial in (self.direction, self.manner, self.place):
            if adverbial:
                words.append(adverbial[0])
        words += after
        phrase = f"(VP {' '.join(words)})"
        return f"(VP {main} (S {phrase}))" if self.gladly else phrase

    def english_statement(self, time: bool = True, reason: str = "") -> str:
        """Subject first, then the VP: what the S of statements and subordinate clauses holds."""
        return f"{self.subject.english} {self.english_verb_phrase(time, reason=reason)}"

    def english_verb_phrase(self, time: bool = True, gap: str = "", reason: str = "") -> str:
        """The finite verb and all that follows it in a statement.

        A *reason* (any subordinate clause behind it) belongs to the modal verb where that is a
        verb of its own (does not want to), like everything else to the main verb otherwise.
        """
        aux, main, around = self._english_verb(self.negated)
        after = self._english_times(time)
        more = ""
        if reason and "{more}" in around:
            more = f" {reason}"
        elif reason:
            after.append(reason)
        phrase = around.format(vp=self.english_predicate(main, gap, after), more=more)
        if self.adverb:
            phrase = f"{self.adverb[0]} {phrase}"
        if self.negated:
            phrase = f"(RB not) {phrase}"
        return f"(VP {aux} {phrase})" if aux else phrase

    def _english_times(self, time: bool) -> list[str]:
        words = []
        if self.clock:
            words.append(self.clock[0])
        if time and self.time:
            words.append(self.time[0])
        return words

    def english_question(self, gap: str = "", time: bool = True) -> str:
        """The auxiliary before the subject, with do-support."""
        aux, main, around = self._english_verb(True)
        predicate = self.english_predicate(main, gap, self._english_times(time))
        phrase = around.format(vp=predicate, more="")
        if self.adverb:
            phrase = f"{self.adverb[0]} {phrase}"
        return f"(SQ {aux} {self.subject.english} {phrase})"

    def english_infinitive(self) -> str:
        """The VP of the bare infinitive with its complements."""
        main = f"(VB {self.frame.verb.english})"
        return self.english_predicate(main, after=self._english_times(True))

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
    return english_noun_phrase("(DT the)" if noun.word_class == "instrument" else "", noun)


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
