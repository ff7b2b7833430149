"""Cleaned training text on its way to disk: written, counted, and rid of duplicates at the end."""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import itertools
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from seq2sweep.data import deduplicate
from seq2sweep.data.clean import SAMPLES, Cleaned, Cleaner, Sample, lowest, shortened


@dataclass
class _Corpus:
    """Counts of the pairs of one corpus."""

    name: str
    read: int = 0
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    changed: Counter[str] = field(default_factory=Counter)


Samples = dict[str, list[Sample]]
"""Dropped pairs to look at: up to SAMPLES for each reason, from all over the text."""


def write_training(
    paths: tuple[Path, Path],
    texts: Iterable[tuple[str, Iterable[Cleaned]]],
    cleaner: Cleaner,
) -> tuple[dict[str, Any], Samples]:
    """Write both sides of the training text, one corpus after the other, each pair once.

    texts: the name of each corpus, and its chunks, as `cleaner` made them, in order. Returns counts
    of all pairs and of each corpus, and samples of those that were dropped.
    """
    corpora: list[_Corpus] = []
    samples: Samples = {reason: [] for reason in cleaner.reasons}
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(path.open("wb")) for path in paths]
        # Of each pair that is written its digest, and its line in its corpus: for duplicates only.
        # The files have no name, and are gone with the process, however that ends.
        digests, lines = (
            stack.enter_context(tempfile.TemporaryFile(dir=paths[0].parent)) for _ in range(2)
        )
        for name, chunks in texts:
            corpus = _Corpus(name)
            corpora.append(corpus)
            for chunk in chunks:
                streams[0].write(chunk.source)
                streams[1].write(chunk.target)
                if "duplicate" in cleaner.reasons:
                    digests.write(chunk.digests.tobytes())
                    lines.write((chunk.lines + np.uint32(corpus.read + 1)).tobytes())
                for reason, found in chunk.samples.items():
                    here = [
                        dataclasses.replace(sample, corpus=name, line=corpus.read + 1 + sample.line)
                        for sample in found
                    ]
                    samples[reason] = lowest([*samples[reason], *here])
                corpus.changed += chunk.changed
                corpus.dropped += chunk.dropped
                corpus.kept += len(chunk.lines)
                corpus.read += len(chunk.lines) + chunk.dropped.total()
        for stream in (*streams, lines):
            stream.flush()
        if "duplicate" in cleaner.reasons:
            samples["duplicate"] = _leave_out_duplicates(paths, digests, lines, corpora)
    return _metrics(corpora, cleaner), samples


def _leave_out_duplicates(
    paths: tuple[Path, Path], digests: BinaryIO, lines: BinaryIO, corpora: Sequence[_Corpus]
) -> list[Sample]:
    """Take every pair out that came before; samples of them."""
    repeated = deduplicate.repeated(digests)
    if not repeated.any():
        return []
    found = deduplicate.lowest(digests, repeated, SAMPLES)
    positions = sorted(found.values())
    source, target = (
        dict(zip(positions, map(shortened, deduplicate.lines_at(path, positions)), strict=True))
        for path in paths
    )
    numbers = np.memmap(lines, np.uint32, "r")
    ends = list(itertools.accumulate(corpus.kept for corpus in corpora))
    samples = [
        Sample(
            digest,
            int(numbers[position]),
            source[position],
            target[position],
            corpora[bisect.bisect_right(ends, position)].name,
        )
        for digest, position in found.items()
    ]
    for corpus, end in zip(corpora, ends, strict=True):
        duplicates = int(np.count_nonzero(repeated[end - corpus.kept : end]))
        corpus.dropped["duplicate"] = duplicates
        corpus.kept -= duplicates
    for path in paths:
        deduplicate.leave_out(path, repeated)
    return samples


def _metrics(corpora: Sequence[_Corpus], cleaner: Cleaner) -> dict[str, Any]:
    def counts(*some: _Corpus) -> dict[str, Any]:
        return {
            "read": sum(corpus.read for corpus in some),
            "kept": sum(corpus.kept for corpus in some),
            "dropped": {why: sum(c.dropped[why] for c in some) for why in cleaner.reasons},
        }

    names = cleaner.normaliser.names
    changed = {name: sum(corpus.changed[name] for corpus in corpora) for name in names}
    by_corpus = {corpus.name: counts(corpus) for corpus in corpora}
    return {**counts(*corpora), "changed": changed, "corpora": by_corpus}


def as_table(samples: Samples) -> str:
    """The samples as tab-separated values: reason, corpus, line (from 1), source, target."""
    rows = [["reason", "corpus", "line", "source", "target"]]
    for reason, found in samples.items():
        for sample in sorted(found, key=lambda sample: (sample.corpus, sample.line)):
            texts = (" ".join(text.split()) for text in (sample.source, sample.target))
            rows.append([reason, sample.corpus, str(sample.line), *texts])
    return "".join("\t".join(row) + "\n" for row in rows)
