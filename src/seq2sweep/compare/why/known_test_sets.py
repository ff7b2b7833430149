"""Which test set references are: by their sha256, and by what scores better against another one."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from sacrebleu.dataset import DATASETS

from seq2sweep.compare.why.line_alignment import TEST_SET, letters
from seq2sweep.compare.why.text_causes import unescape
from seq2sweep.compare.why.waterfall import SEEN, Cause, Texts
from seq2sweep.data.clean import Normaliser
from seq2sweep.data.reading import read_lines
from seq2sweep.evaluate.bleu import join_hyphens

PAPERS = "newstest2014 (3003 sentences)"
_NEWSTEST2013 = "newstest2013 (3000 sentences)"
KNOWN = {
    "026f4fd1fe147ece7eb201ef46063482990554d342e05db9480b1258d71d3d4f": _NEWSTEST2013,  # de
    "80b81d23ddfd16724aa21b288b21f29c825c8838807aecbc65fe8a1b313325de": _NEWSTEST2013,  # en
    "d197faafd03242c13f4589cc4c8391a8d33da7be08feab5b8759593ee04fda2e": _NEWSTEST2013,  # fr
    "1b54708706cbe6441cbbb1ccedfb44ca01bf3cd67a9fda8d2ab8433c76288013": PAPERS,  # de
    "7294bccf2879a97b3706b95c9595f1459617a8ee7130d5d8581c910e69736971": PAPERS,  # en of de
    "b557ced6d84c13c55edbd81479b6dd86c8128b284a97f52250af95bbf1d57263": PAPERS,  # fr
    "9a12cb6e8efb3509ebede627e4a9c83ee64935509d561ff70f4b7bd5f93f6096": PAPERS,  # en of fr
}
"""By `fingerprint` of the references in statmt.org's dev.tgz and test-full.tgz of WMT14."""


class CachedSet(NamedTuple):
    """A test set of sacreBLEU's cache; no source lines where only the references are there."""

    name: str
    references: list[str]
    sources: list[str]


def fingerprint(lines: Sequence[str]) -> str:
    """sha256 (hex) of lines, normalised as the stage `prepare` does, each ended by a line feed."""
    normalised = map(Normaliser(), lines)
    return hashlib.sha256("".join(line + "\n" for line in normalised).encode()).hexdigest()


def known(references: Sequence[str]) -> str | None:
    """The name of the test set that these references are, if it is one of KNOWN."""
    return KNOWN.get(fingerprint(references))


def find_better(
    texts: Texts, source: str, target: str, score: Callable[[Texts], float]
) -> tuple[Cause | None, list[str]]:
    """Another test set that the translations score higher against, and the names of all tried.

    Tried are those with as many sentences of all that sacreBLEU has in its cache: nothing is
    fetched. Left out are these references themselves, in whatever case, tokens or entities, and
    others of the same sentences.
    """
    best, before, tried = None, score(texts.aligned()), []
    sets = _cached(f"{source}-{target}")
    own = [one for one in sets if _same(one.references, texts.references)]
    for one in sets:
        these = one in own or any(_same(one.sources, other.sources) for other in own)
        if these or len(one.references) != len(texts.hypotheses):
            continue
        tried.append(one.name)
        bleu = score(Texts(texts.hypotheses, one.references))
        if bleu >= before + SEEN:
            before, best = bleu, _of_set(one.name, one.references)
    return best, tried


def _same(lines: Sequence[str], others: Sequence[str]) -> bool:
    """Whether most lines have the same letters and digits as those beside them."""
    if len(lines) != len(others):
        return False
    equal = (_text(one) == _text(other) for one, other in zip(lines, others, strict=True))
    return 2 * sum(equal) > len(lines)


def _text(line: str) -> str:
    return letters(join_hyphens(unescape(line)))


def _of_set(name: str, references: list[str]) -> Cause:
    evidence = f"the translations are of sacreBLEU's {name}, not of these references"

    def undo(given: Texts) -> Texts:
        return Texts(given.hypotheses, references)

    return Cause(TEST_SET, evidence, undo, of_lines=True)


def _cached(pair: str) -> list[CachedSet]:
    found = []
    for name, dataset in DATASETS.items():
        if pair in dataset.langpairs and os.path.isdir(dataset._outdir):
            path = dataset._get_txt_file_path  # of a field
            references, sources = (_lines(Path(path(pair, field))) for field in ("ref", "src"))  # type: ignore[no-untyped-call]
            if references:
                found.append(CachedSet(name, references, sources))
    return found


def _lines(path: Path) -> list[str]:
    """None of a file that is missing or empty."""
    there = path.is_file() and path.stat().st_size
    return [line.rstrip() for line in read_lines(path)] if there else []
