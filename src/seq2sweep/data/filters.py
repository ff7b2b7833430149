"""Reasons to drop a training pair: pure functions of normalised text.

Each is built to err on the side of keeping a pair: among millions a bad one that is kept does
little, and what is dropped wrongly is missing where it is rare.
"""

from __future__ import annotations

import functools
import re
from typing import Any

CHARACTERS_PER_WORD = 20
"""A side is too long also with more characters than this for each allowed word."""
RATIO_FROM_WORDS = 10
"""Pairs whose longer side has at most this many words are never out of proportion."""
COPIED_FROM_WORDS = 6
"""Equal sides of fewer words are kept."""


def is_empty(text: str) -> bool:
    """Nothing but white space: there is nothing to learn from."""
    return not text or text.isspace()


def is_too_long(text: str, max_words: int) -> bool:
    """More than `max_words` words, or more than 20 characters for each word allowed.

    Such a line is mostly several sentences that were not split, and as the longest of a batch it
    is what memory is needed for. The second half bounds scripts written without blanks and
    debris such as encoded images, which count as a single word.
    """
    if len(text) > CHARACTERS_PER_WORD * max_words:
        return True
    # Words are at least a character and a blank, so most lines need not be counted.
    return len(text) >= 2 * max_words and _words(text) > max_words


def is_out_of_proportion(source: str, target: str, max_ratio: float) -> bool:
    """One side has more than `max_ratio` times the words of the other, and times its bytes.

    A translation is about as long as what it translates; otherwise the sides are not aligned.
    Short pairs say little ("Danke." and "Thank you very much indeed."), so a pair is judged only
    if its longer side has more than 10 words. UTF-8 bytes count too, since words alone would drop
    every pair of a language written with blanks and one written without (a Chinese sentence is
    one "word", but about as many bytes as its English translation).
    """
    short, long = sorted((len(source.encode()), len(target.encode())))
    if long <= max_ratio * short:
        return False
    short, long = sorted((_words(source), _words(target)))
    return long > RATIO_FROM_WORDS and long > max_ratio * short


def is_copied(source: str, target: str) -> bool:
    """Both sides are the same sentence of 6 words or more, but for upper and lower case.

    A few percent of copies in training suffice for beam search to prefer copying the source to
    translating it (Ott et al. 2018, "Analyzing Uncertainty in Neural Machine Translation").
    Shorter copies are mostly right: names, addresses, "Salon de la Jeunesse". So are figures, so
    words count only if they hold a letter.
    """
    if len(source) != len(target) or source.lower() != target.lower():
        return False
    with_letters = sum(any(map(str.isalpha, word)) for word in source.split())
    return with_letters >= COPIED_FROM_WORDS


def is_other_script(text: str, language: str) -> bool:
    """More than half of the letters are not of a script that the language is written in.

    Then it is another language. Where it is not written in Latin letters, a run of them counts as
    one: names and formulas in between do no harm. Letters that no script owns (such as U+00B5, the
    micro sign) are not counted; a language that is not in LANGUAGES_OF_SCRIPT is never judged.
    """
    patterns = _script_patterns(language)
    if patterns is None:
        return False
    own, other, latin = patterns
    if latin and _ONLY_LATIN.fullmatch(text):
        return False
    strange = len(other.findall(text))
    return strange > 0 and strange > len(own.findall(text))


LANGUAGES_OF_SCRIPT = {
    "Latin": "af br bs ca cs cy da de en eo es et eu fi fo fr fy ga gd gl hr hu id is it la lb lt "
    "lv ms mt nb nl nn no oc pl pt rm ro sk sl sq sr sv sw tl tr vi xh zu",
    "Cyrillic": "be bg kk ky mk mn ru sr tg uk",
    "Greek": "el",
    "Armenian": "hy",
    "Georgian": "ka",
    "Hebrew": "he iw yi",
    "Arabic": "ar fa ps ur",
    "Devanagari": "hi mr ne",
    "Bengali": "as bn",
    "Gujarati": "gu",
    "Gurmukhi": "pa",
    "Tamil": "ta",
    "Telugu": "te",
    "Kannada": "kn",
    "Malayalam": "ml",
    "Sinhala": "si",
    "Thai": "th",
    "Lao": "lo",
    "Khmer": "km",
    "Myanmar": "my",
    "Ethiopic": "am ti",
    "Hangul": "ko",
    "Hiragana": "ja",
    "Katakana": "ja",
    "Han": "ja ko zh",
}
"""Language codes (ISO 639-1) by Unicode script; a language may have several."""


# Letters of these ranges are Latin or nobody's: for nearly every line it is all there is to ask.
_ONLY_LATIN = re.compile("[\x00-\u02b8\u1e00-\u1eff\u2000-\u206f\u20a0-\u20bf]*+")


@functools.cache
def _script_patterns(language: str) -> tuple[Any, Any, bool] | None:
    """Patterns of letters of its scripts and of any other, and whether one of its own is Latin."""
    import regex  # takes a while, and translating needs none of it

    code = re.split("[-_]", language.lower())[0]
    scripts = [name for name, codes in LANGUAGES_OF_SCRIPT.items() if code in codes.split()]
    if not scripts:
        return None
    own = "".join(rf"\p{{Script={script}}}" for script in scripts)
    latin = "Latin" in scripts
    name = "" if latin else r"\p{Script=Latin}+|"
    return (
        regex.compile(rf"[\p{{L}}&&[{own}]]", regex.V1),
        regex.compile(rf"{name}[\p{{L}}--[\p{{Common}}\p{{Inherited}}{own}]]", regex.V1),
        latin,
    )


def _words(text: str) -> int:
    return len(text.split())
