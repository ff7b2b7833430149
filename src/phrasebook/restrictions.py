"""What is grammatical but odd: restrictions on the company words keep.

Verbs are named by their English with its particle or preposition ("wash up", "look for").
"""

from __future__ import annotations

from .lexicon import Frame, Noun
from .nominals import Nominal

# People one has, so to speak, next to one's family.
RELATED = frozenset(
    "boss colleague neighbour friend doctor dentist teacher hairdresser lawyer guest".split()
)
_OWNABLE_CLASSES = frozenset(
    "clothing footwear device portable container toy vehicle instrument pet furniture room".split()
)
_OWNABLE = frozenset(
    "house garden book letter diary novel newspaper plan mistake question answer coffee tea soup "
    "photo secret dream problem opinion task cake sandwich".split()
)
_NOT_OWNABLE = frozenset(
    "bus train tram ship plane taxi glass cup plate bottle pot pan bowl knife fork spoon "
    "vase bucket stamp coin fridge heater oven box basket map chair bench".split()
)
# What several people may have in common; of other things each has one of his own.
_SHARED_CLASSES = frozenset("device vehicle pet furniture room".split())
_SHARED = frozenset("house garden plan mistake problem secret dream suitcase photo piano".split())

# Verbs, by what they go with ----------------------------------------------------------------

# Habits one may have daily, with a plural or uncountable object where there is one.
REPEATABLE = frozenset(
    "work laugh dance sing swim run hike jog cycle cook bake read write eat drink feed clean "
    "play learn iron water help study ride draw peel".split()
)
# Acts that recur, though not by the day.
RECURRENT = REPEATABLE | frozenset(
    "buy sell forget repair hear photograph translate order borrow rent sew knit bark smile "
    "collect".split()
)
# States whose object may be a whole kind of things.
KIND_STATES = frozenset("need collect like love hate".split())
# What is done on purpose is not done with things one dislikes.
_INTENDED = frozenset(
    "organise recommend order buy cook bake rent promise build plant borrow use draw offer bring "
    "give show prepare knit sew write repair explain eat drink invite wear hide pack".split()
) | {"look forward to", "dream of", "take part in", "put on", "try on", "bring along"}
_UNPLEASANT = frozenset(
    "bad boring terrible wrong stupid dirty broken empty sour lazy dangerous cheap weak hard "
    "difficult loud slow".split()
)
UNINTENDED = frozenset("break lose forget miss freeze sneeze cry disturb steal".split()) | {
    "get used to",
    "fall asleep",
    "fall in love with",
    "argue with",
}
# What nobody plans, orders or permits.
NEVER_PLANNED = frozenset(
    "see hear find catch arrest bite meet laugh smile shout win kiss hug run".split()
) | {
    "look forward to",
    "dream of",
    "think of",
    "laugh about",
    "look for",
    "wait for",
    "wake up",
}
_WORN = frozenset({"wear", "put on", "take off", "try on"})
LADIES_WEAR = frozenset("dress skirt blouse".split())
# Of these one can hardly say that they have never happened, or just the once.
NOT_NEVER = frozenset(
    "sleep laugh cry work eat drink rest wait smile shout run leave land start end burn grow bloom "
    "arrive stop die disappear need wear read write close open greet ask answer thank buy call "
    "wash carry chase bark fly".split()
) | {"get up", "wake up", "fall asleep", "take place", "think of", "put on", "take off", "talk to"}
# Acts that matter for longer than a week, and so may be dated by the month or year.
MAJOR = frozenset(
    "buy sell build rent repair win hike travel fly drive move live stay visit translate write "
    "plant burn die disappear photograph celebrate dance work cancel organise steal lose ride "
    "knit sew borrow".split()
) | {"take part in", "fall in love with"}
# An object of these is one that is known already.
DEFINITE = frozenset(
    "turn lock close water dry tidy clean return iron cancel hide sign".split()
) | {
    "wash up",
    "get used to",
    "talk about",
    "complain about",
    "think of",
    "look forward to",
    "laugh about",
    "miss",
    "take care of",
    "remember",
    "pick up",
    "discuss",
    "check",
    "correct",
    "throw away",
    "search",
    "describe",
    "call",
    "paint",
    "greet",
    "show",
    "push",
    "cover",
    "forget",
    "contradict",
    "wash",
    "comfort",
    "trust",
    "accompany",
    "disturb",
    "follow",
    "celebrate",
    "prepare",
    "unpack",
    "take off",
    "cut",
    "tidy up",
    "turn on",
    "turn off",
}
# One cannot do these to what is one's own already (or the English would say it otherwise).
_NOT_WITH_OWN = frozenset(
    "win build draw sew knit cook bake order buy rent borrow plant steal catch collect know hear "
    "recommend need arrest pick promise photograph examine like hate meet organise".split()
) | {"wait for", "look forward to", "ask for", "talk about", "see", "dream of"}
# Food that is cooked, bought or planted by the handful.
_BY_THE_HANDFUL = frozenset("potato carrot mushroom onion strawberry cherry tomato".split())
_ONE_AT_A_TIME = frozenset("peel cut find lose".split()) | {"look for"}
# A person may be one among others of this kind.
_ONE_OF_MANY = frozenset(
    "child man woman boy girl guest tourist friend customer colleague neighbour student musician "
    "journalist singer actress painter patient pupil thief baby".split()
)
_COUNTED = frozenset("child guest tourist friend customer colleague student patient pupil".split())
_MOODS = frozenset(
    "sick tired hungry thirsty angry happy nervous sad curious careful brave weak lazy poor strict "
    "patient punctual rich strong honest".split()
)
YOUNG = frozenset("child boy girl pupil baby".split())
_FOR_ADULTS = frozenset(
    "rent sign sell order check organise cancel repair prepare steal correct".split()
)
# What food is like on the table rather than in the pan.
_AFTER_COOKING = frozenset("cold hot warm hard soft ripe healthy sweet sour".split())
# Acts that one counts the objects of.
_NUMBERED = frozenset(
    "buy sell eat bake write read see feed draw plant translate send bring sew knit repair rent "
    "win photograph order catch pick break steal organise solve invite peel fry build borrow "
    "paint drink".split()
) | {"take care of", "wait for", "look for"}
# Undertakings that take time and strength: one may be too tired or too busy for them.
UNDERTAKINGS = frozenset(
    "work dance swim hike jog cycle read write cook bake iron sew wash dry clean repair draw "
    "plant water feed translate visit play learn study prepare help paint knit ride search "
    "accompany correct".split()
) | {
    "wash up",
    "tidy up",
    "take care of",
    "take part in",
    "play with",
    "talk to",
    "unpack",
    "sing",
}
# Shorter acts that one may plan, forget, or ask somebody to do.
ERRANDS = (
    UNDERTAKINGS
    | frozenset(
        "buy sell order lock call sign pack thank pick return recommend send bring invite "
        "explain describe apologise lend show cancel open close photograph discuss solve".split()
    )
    | {
        "turn on",
        "turn off",
        "bring along",
        "pick up",
        "throw away",
        "cover",
        "apologise to",
        "read out",
        "tell",
    }
)
REQUESTED = (
    (
        ERRANDS
        | frozenset("wait follow trust believe comfort eat drink use give help".split())
        | {"wait for", "listen to", "put on", "take off", "try on", "answer", "greet"}
    )
    - {"pick up"}
    - frozenset(
        "learn study rent sell thank knit ride search sew dance play swim hike jog cycle work read "
        "write paint".split()
    )
)
# What one may be asked to leave alone.
REFUSED = frozenset(
    "open close lock call eat drink use buy order send sign wash invite".split()
) | {
    "turn on",
    "turn off",
    "wait for",
    "throw away",
    "unpack",
}
# What goes on for a while in the presence of others.
LASTING = (
    UNDERTAKINGS
    | frozenset("sleep rest wait eat drink smoke try discuss".split())
    | {
        "wait for",
        "listen to",
        "read out",
        "look for",
        "watch",
    }
)
# The act leaves nothing that could be described now.
CONSUMED = frozenset(
    "eat drink break throw burn cancel miss cut peel fry celebrate win bake cook dry wash clean "
    "tidy iron repair smell taste organise prepare love hate understand like".split()
) | {"throw away", "take part in"}


# States of mind that are never brought to an end.
NOT_FINISHED = frozenset(
    {"look forward to", "think of", "laugh about", "look for", "wait for", "dream of"}
)
# Of vehicles: dated by the hour rather than by the day.
BY_THE_HOUR = frozenset("stop leave land".split())
# What is over once it has happened: hardly anybody says that it has not.
NOT_DENIED = frozenset("grow bloom burn disappear end die start".split()) | {
    "dream of",
    "think of",
    "laugh about",
    "look for",
    "hate",
    "love",
}


def is_person(noun: Noun) -> bool:
    """Whether the noun means a human being."""
    return noun.word_class in ("family", "job", "human", "apart")


def ownable(noun: Noun) -> bool:
    """Whether "my ..." is a natural thing to say."""
    if noun.english in _NOT_OWNABLE:
        return False
    return (
        noun.word_class in _OWNABLE_CLASSES or noun.english in _OWNABLE or noun.english in RELATED
    )


def too_young(subject: Nominal, noun: Noun) -> bool:
    """Whether children would be said to have children."""
    young = subject.noun is not None and subject.noun.english in YOUNG
    return young and noun.english in ("son", "daughter", "grandson", "nephew", "niece")


def shareable(noun: Noun) -> bool:
    """Whether "our ..." in the singular is a natural thing to say."""
    return noun.word_class in _SHARED_CLASSES or noun.english in _SHARED or is_person(noun)


# How people feel for an hour or a day.
FEELINGS = frozenset("sick tired hungry thirsty angry happy nervous sad".split())
# What would be odd advice however it is put.
PASTIMES = frozenset("pick draw peel plant knit sew iron read write play".split())


def odd_object(frame: Frame, subject: Nominal, thing: Nominal, kind: str, negated: bool) -> bool:
    """Whether an object (accusative or prepositional) does not suit its verb."""
    verb, noun = frame.verb.phrase, thing.noun
    adjective = thing.adjective.english if thing.adjective else ""
    own = "possessive" in thing.tags
    if noun is None or thing.second is not None:
        return False
    form = kind.partition(" ")[0]
    if verb == "promise" and form != "a":
        return True
    if adjective in _UNPLEASANT and verb in _INTENDED:
        return True
    if own and noun.word_class != "family" and verb in _NOT_WITH_OWN:
        return True
    if own and subject.agreement == "pl" and not shareable(noun):
        return True
    if form == "number" and (verb in _WORN or verb == "celebrate"):
        return True
    if form == "number" and verb not in _NUMBERED:
        return True
    if verb == "tidy up" and form == "plural":
        return True
    if form == "number" and noun.word_class == "room" and noun.english not in ("room", "office"):
        return True
    certain_fruit = noun.word_class == "fruit" and thing.agreement == "3sg"
    if certain_fruit and (verb == "pick" or verb in KIND_STATES and form == "the"):
        return True
    in_numbers = noun.english in _BY_THE_HANDFUL or noun.word_class == "footwear"
    if in_numbers and thing.agreement == "3sg" and verb not in _ONE_AT_A_TIME:
        return True
    if adjective and (verb in ("organise", "get used to") or noun.word_class == "family"):
        return True
    if subject.noun and subject.noun.english in YOUNG and verb in _FOR_ADULTS:
        return True
    if verb in ("cook", "bake", "fry") and adjective in _AFTER_COOKING:
        return True
    # Several people do not wear one jacket.
    several = subject.agreement == "pl" and subject.name not in ("you", "we")
    if verb in _WORN and several and thing.agreement == "3sg":
        return True
    if noun.english == "soup" and thing.agreement == "pl":
        return True
    if is_person(noun) and noun.word_class != "family":
        if form in ("a", "plural") and noun.english not in _ONE_OF_MANY and verb != "need":
            return True
        if form == "number" and noun.english not in _COUNTED:
            return True
        if adjective in FEELINGS and verb not in ("help", "comfort", "take care of"):
            return True
        if adjective and (negated or adjective in _MOODS and form != "the"):
            return True
    animal = noun.word_class in ("pet", "farm", "wild")
    if animal and adjective in FEELINGS and verb != "feed":
        return True
    lady = noun.english in LADIES_WEAR
    worn = verb in _WORN or own
    return lady and worn and subject.own_english == "his"
