"""What happened to translations or references on their way to a file, told by the text alone.

Each cause is looked for in text where those before it are undone, and undone in that order:

| cause | what tells it | undone |
|---|---|---|
| pieces left in | `@@`, `▁`, `##` of subwords, `</s>` | joined as their tool joins them |
| compound split | `##AT##-##AT##` or `@-@` | joined |
| entities | `&quot;`, `&apos;`, `&#124;` and others | the characters they stand for |
| detokenised or not | most full stops and commas stand after a blank | Moses' detokenizer |
| quotes | quotes, or apostrophes, of another style than in the references | that style |
| case | hardly a capital in one text, and many in the other | see `_recased` |
| unknowns | `<unk>`, `⁇` | the word that the reference has between the same neighbours |
| cut lengths | most of the longest lines break off | references cut as short |

The last three lost what cannot be had again from the text: their shares are estimates.
"""

from __future__ import annotations

import html
import operator
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence

from sacremoses import MosesDetokenizer

from seq2sweep.compare.why.waterfall import Cause, Texts
from seq2sweep.evaluate.bleu import base_language, join_hyphens

CUT = "cut lengths"
NAMES = (
    "pieces left in",
    "compound split",
    "entities",
    "detokenised or not",
    "quotes",
    "case",
    "unknowns",
    CUT,
)
"""Of all causes here."""
NEAR = 20
"""Characters before a word or quote that tell whether a sentence begins, or a quotation."""
MOST_ESCAPES = 4
Lines = Sequence[str]
Find = Callable[[Texts], Cause | None]


def find(texts: Texts, language: str) -> Iterator[Cause]:
    """The causes that these aligned texts show, in the order of the table above."""
    finders: list[Find] = [
        _either("pieces left in", "have pieces of words", _has_pieces, _without_pieces),
        _either(
            "compound split",
            "have hyphens that stand apart",
            lambda line: join_hyphens(line) != line,
            join_hyphens,
        ),
        _either("entities", "have entities", lambda line: unescape(line) != line, unescape),
        _detokenise(base_language(language)),
        _quotes,
        _case,
        _unknowns,
        _cut,
    ]
    for finder in finders:
        if found := finder(texts):
            yield found
            texts = found.undo(texts)


def _stands_after(before: re.Pattern[str], found: re.Match[str]) -> bool:
    """Whether what stands before something that was found ends as a pattern says.

    Only the last NEAR characters are looked at: lines may be long.
    """
    at = found.start()
    return bool(before.search(found.string, max(0, at - NEAR), at))


def _either(name: str, what: str, shows: Callable[[str], bool], undo: Callable[[str], str]) -> Find:
    """Of a fault that is undone line by line, in translations and in references."""

    def finder(texts: Texts) -> Cause | None:
        counts = [sum(map(shows, lines)) for lines in (texts.hypotheses, texts.references)]
        if not any(counts):
            return None
        evidence = f"{_of_each(counts)} {what}"
        return Cause(name, evidence, lambda given: _each(given, lambda lines: [*map(undo, lines)]))

    return finder


def _each(texts: Texts, change: Callable[[Lines], Lines]) -> Texts:
    return Texts(change(texts.hypotheses), change(texts.references))


def _of_each(counts: Sequence[int]) -> str:
    sides = zip(counts, ("translations", "references"), strict=True)
    return " and ".join(f"{count} {side}" for count, side in sides if count)


# --- pieces and entities -------------------------------------------------------------------------

_MARKED_END = re.compile(r"(?<=\S)@@(?: |$)")  # subword-nmt
_MARKED_INSIDE = re.compile(r"(?<=\S) ##(?!AT##)(?=\w)")  # WordPiece
_SPECIAL = re.compile(r" ?(?:</?s>|<pad>) ?")
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,31});")
_BLANK = "▁"  # SentencePiece


def _has_pieces(line: str) -> bool:
    return line.startswith(_BLANK) or any(
        pattern.search(line) for pattern in (_MARKED_END, _MARKED_INSIDE, _SPECIAL)
    )


def _without_pieces(line: str) -> str:
    line = _SPECIAL.sub(" ", line).strip()
    if line.startswith(_BLANK):
        line = line.replace(" ", "").replace(_BLANK, " ").strip()
    return _MARKED_INSIDE.sub("", _MARKED_END.sub("", line))


def unescape(line: str) -> str:
    """With the characters that entities stand for; `&amp;quot;` was escaped twice."""
    for _ in range(MOST_ESCAPES):
        line = _ENTITY.sub(lambda found: html.unescape(found[0]), line)
    return line


# --- tokens --------------------------------------------------------------------------------------

_ATTACHED, _APART = re.compile(r"\w[.,](?= |$)"), re.compile(r"\w [.,](?= |$)")


def _detokenise(language: str) -> Find:
    def finder(texts: Texts) -> Cause | None:
        counts = [*map(_tokenised, (texts.hypotheses, texts.references))]
        if not any(counts):
            return None
        detokenizer = MosesDetokenizer(lang=language)

        def plain(lines: Lines) -> Lines:
            if not _tokenised(lines):
                return lines
            # Entities are a cause of their own.
            found = (detokenizer.detokenize(line.split(), unescape=False) for line in lines)
            return [*map(_closed_up, found)]

        evidence = f"{_of_each(counts)} have a blank before a full stop or comma"
        return Cause("detokenised or not", evidence, lambda given: _each(given, plain))

    return finder


def _tokenised(lines: Lines) -> int:
    """How many lines have a full stop or comma apart; 0 where most stand at their words."""
    apart = sum(len(_APART.findall(line)) for line in lines)
    attached = sum(len(_ATTACHED.findall(line)) for line in lines)
    return sum(bool(_APART.search(line)) for line in lines) if apart > attached else 0


def _closed_up(line: str) -> str:
    """Quotes that Moses' detokenizer leaves alone, at the text between them."""
    if "”" in line:
        line = re.sub("“ (?=\\S)", "“", re.sub(" (?=”)", "", line))
    elif "„" in line:
        line = re.sub("„ (?=\\S)", "„", re.sub(" (?=“)", "", line))
    return line


# --- quotes --------------------------------------------------------------------------------------

_STYLES = {'"': '""', "„": "„“", "”": "“”", "«": "«»", "''": ("``", "''")}
"""The two marks of each style, by one that only this style has."""
_QUOTE = re.compile("``|''|[\"„“”«»]")
_OPENS = re.compile(r"(?:^|[\s(\[{/–—-])$")
_APOSTROPHE = re.compile(r"(?<=\w)['’](?=\w)")


def _quotes(texts: Texts) -> Cause | None:
    """Of a line whose reference has none, the style changes only where most differ."""
    usual = [
        theirs if theirs != find(texts.hypotheses) else None
        for find in (_style, _apostrophe)
        for theirs in [find(texts.references)]
    ]

    def fitted(line: str, reference: str) -> str:
        style = _style([reference]) or usual[0]
        apostrophe = _apostrophe([reference]) or usual[1]
        if style:
            line = _with_quotes(line, *_STYLES[style])
        return _APOSTROPHE.sub(apostrophe, line) if apostrophe else line

    def undo(given: Texts) -> Texts:
        return Texts([*map(fitted, given.hypotheses, given.references)], given.references)

    changed = sum(map(operator.ne, texts.hypotheses, undo(texts).hypotheses))
    evidence = f"{changed} translations have quotes of another style than their references"
    return Cause("quotes", evidence, undo) if changed else None


def _style(lines: Lines) -> str | None:
    """The mark, a key of _STYLES, that most quotes have; None where there are none."""
    found = Counter({mark: sum(line.count(mark) for line in lines) for mark in _STYLES})
    found['"'] //= 2  # it opens and closes
    (mark, count), *_ = found.most_common(1)
    return mark if count else None


def _apostrophe(lines: Lines) -> str | None:
    found = Counter(mark for line in lines for mark in _APOSTROPHE.findall(line))
    return found.most_common(1)[0][0] if found else None


def _with_quotes(line: str, opening: str, closing: str) -> str:
    """The line with these marks in place of all others, by what stands before each of them."""

    def fitting(found: re.Match[str]) -> str:
        return opening if _stands_after(_OPENS, found) else closing

    return _QUOTE.sub(fitting, line)


# --- case ----------------------------------------------------------------------------------------

_WORD = re.compile(r"\w+(?:['’-]\w+)*")
_START = re.compile(r"(?:^|[.!?][\"'“”„»«)]*\s+)[\"'“„»«(–-]*\s*$")
FEW = 0.1
"""As many capitals as a share of the other text's make a text one in lower case."""


def _case(texts: Texts) -> Cause | None:
    both = (texts.hypotheses, texts.references)
    small, their_small = (_share(lines, str.islower) for lines in both)
    ours, theirs = (_share(lines, str.isupper) for lines in both)
    if not (ours or small):  # there is no letter
        return None
    if small < FEW * their_small:
        return Cause("case", "the translations are in capitals", _recased, estimate=True)
    shares = (
        f"{ours:.1%} of the translations' letters are capitals, {theirs:.1%} of the references'"
    )
    if ours < FEW * theirs:
        return Cause("case", shares, _recased, estimate=True)
    if theirs < FEW * ours:
        return Cause(
            "case",
            shares,
            lambda given: Texts([line.lower() for line in given.hypotheses], given.references),
            estimate=True,
        )
    return None


def _share(lines: Lines, of: Callable[[str], bool]) -> float:
    """Of all letters, the share that are such, as capitals."""
    letters = Counter(c for line in lines for c in line if c.isalpha())
    return sum(n for c, n in letters.items() if of(c)) / max(1, letters.total())


def _recased(texts: Texts) -> Texts:
    """Translations in the case of their references.

    Of a word that its reference has inside of a sentence, it is that case; else that of most such
    words in all references; and a sentence begins with a capital.
    """
    usual: defaultdict[str, Counter[str]] = defaultdict(Counter)
    own = [_inside(line) for line in texts.references]
    for words in own:
        for lower, cased in words.items():
            usual[lower].update(cased)
    best = {lower: counts.most_common(1)[0][0] for lower, counts in usual.items()}
    pairs = zip(texts.hypotheses, own, strict=True)
    return Texts([_recase(line, words, best) for line, words in pairs], texts.references)


def _recase(line: str, own: dict[str, list[str]], usual: dict[str, str]) -> str:
    line, used = line.lower(), Counter[str]()

    def cased(found: re.Match[str]) -> str:
        lower = found[0]
        cases = own.get(lower, [usual.get(lower, lower)])
        word = cases[min(used[lower], len(cases) - 1)]
        used[lower] += 1
        return word[:1].upper() + word[1:] if _stands_after(_START, found) else word

    return _WORD.sub(cased, line)


def _inside(line: str) -> dict[str, list[str]]:
    """Words that begin no sentence, by how they are in lower case."""
    words: defaultdict[str, list[str]] = defaultdict(list)
    for found in _WORD.finditer(line):
        if not _stands_after(_START, found):
            words[found[0].lower()].append(found[0])
    return words


# --- unknowns ------------------------------------------------------------------------------------

_UNKNOWN = re.compile(r"(?i:< ?unk ?>|\[unk\])|⁇|(?<!\S)UNK(?!\S)")
_MARK = "⁇"
_TOKEN = re.compile(rf"{_MARK}|\w+|[^\w\s]")


def _unknowns(texts: Texts) -> Cause | None:
    count = sum(len(_UNKNOWN.findall(line)) for line in texts.hypotheses)
    if not count:
        return None

    def undo(given: Texts) -> Texts:
        pairs = zip(given.hypotheses, given.references, strict=True)
        return Texts([_filled(line, reference) for line, reference in pairs], given.references)

    return Cause("unknowns", f"{count} unknown words in the translations", undo, estimate=True)


def _filled(line: str, reference: str) -> str:
    """With the reference's word where it has one between the same neighbours; else with one token
    that matches nothing, as long as a word."""
    line = _UNKNOWN.sub(_MARK, line)
    if _MARK not in line:
        return line
    tokens = ["", *_TOKEN.findall(line), ""]
    there = ["", *_TOKEN.findall(reference), ""]
    between = {
        (before, after): word
        for before, word, after in zip(there, there[1:], there[2:], strict=False)
    }
    triples = zip(tokens, tokens[1:], tokens[2:], strict=False)
    words = iter(
        [between.get((before, after), _MARK) for before, at, after in triples if at == _MARK]
    )
    return re.sub(_MARK, lambda found: next(words), line)


# --- cut lengths ---------------------------------------------------------------------------------

ENDING = re.compile(r"[.!?…:;。！？：；।॥؟۔།༎။៕។][\"'“”»«)\]」』）]*$")
_UNSPACED = re.compile("[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
"""Of scripts without blanks between words, though other words among them have some: Thai, Lao,
Tibetan, Burmese, Khmer, Japanese and Chinese."""
FEWEST = 3


def _cut(texts: Texts) -> Cause | None:
    cut = _broken_off(texts)
    if not cut:
        return None

    def undo(given: Texts) -> Texts:
        references = list(given.references)
        for i in _broken_off(given):
            words, length = len(given.hypotheses[i].split()), len(given.hypotheses[i])
            unspaced = 4 * len(_UNSPACED.findall(references[i])) > len(references[i])
            if unspaced or len(references[i].split()) == 1:
                references[i] = references[i][:length].rstrip()
            else:
                references[i] = " ".join(references[i].split()[:words])
        return Texts(given.hypotheses, references)

    evidence = f"{len(cut)} translations, most of the longest, break off"
    return Cause(CUT, evidence, undo, estimate=True)


def _broken_off(texts: Texts) -> list[int]:
    """Those of the longest lines, most of which lack the end that their reference has.

    The length may have been limited in words, or in pieces, of which characters are the nearest.
    """
    measures: tuple[Callable[[str], int], ...] = (lambda line: len(line.split()), len)
    found = [_longest_broken(texts, measure) for measure in measures]
    return max(found, key=len)


def _longest_broken(texts: Texts, measure: Callable[[str], int]) -> list[int]:
    lengths = [measure(line) for line in texts.hypotheses]
    broken, best = [], list[int]()
    # Lines without blanks are all of one word.
    longest_first = sorted(
        range(len(lengths)), key=lambda i: (-lengths[i], -len(texts.hypotheses[i]))
    )
    for rank, i in enumerate(longest_first, 1):
        ours, theirs = texts.hypotheses[i], texts.references[i]
        if ENDING.search(theirs) and not ENDING.search(ours):
            broken.append(i)
            if 2 * len(broken) > rank:
                best = [*broken]
    return best if len(best) >= FEWEST else []
