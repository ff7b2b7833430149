"""What translations are scored against: a file, or a test set that sacreBLEU knows by name.

The paper's test set, newstest2014, exists twice: `wmt14/full` has 3003 sentences and is the one in
the paper's tables; `wmt14` has the 2737 of them that the German-English evaluation of that year
was held on. Their scores are not comparable.
"""

from __future__ import annotations

import contextlib
import difflib
import http.client
import logging
import socket
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sacrebleu.dataset import DATASETS
from sacrebleu.utils import portalocker  # type: ignore[attr-defined]

from seq2sweep.data.reading import read_lines
from seq2sweep.errors import UserError

NEWSTEST2014 = {"wmt14": 2737, "wmt14/full": 3003}
# A network that swallows packets would otherwise hold the command for minutes.
CONNECT_SECONDS = 30.0


@dataclass(frozen=True)
class Texts:
    """Hypotheses of one or more systems, and their references: lists of equal length.

    `test_set` is what a score adds about a named reference: {"test_set": {name, sentences}}, or
    empty.
    """

    hypotheses: list[list[str]]
    references: list[str]
    test_set: dict[str, Any] = field(default_factory=dict)


def read_texts(
    hypotheses: Sequence[Path],
    reference: Path | str,
    target_language: str,
    source_language: str | None,
) -> Texts:
    """Read all that a score needs, plain or .gz.

    `reference` is a file where there is one, else the name of a sacreBLEU test set, which sacreBLEU
    fetches when its cache does not hold it. `source_language` is needed with a name only.

    Raises:
        UserError: a file is missing, empty or not UTF-8, lengths differ, or there is no such test
            set for these languages, or it cannot be fetched.
    """
    name = str(reference)
    references, named = read_references(reference, target_language, source_language)
    called = f"{name} {source_language}-{target_language}" if named else name
    texts = []
    for path in hypotheses:
        lines = list(read_lines(path))
        if len(lines) != len(references):
            raise _unequal(path, len(lines), called, len(references))
        texts.append(lines)
    about = {"test_set": {"name": name, "sentences": len(references)}} if named else {}
    return Texts(texts, references, about)


def read_references(
    reference: Path | str, target_language: str, source_language: str | None
) -> tuple[list[str], bool]:
    """The references alone, and whether they are a named test set; otherwise as `read_texts`."""
    name = str(reference)
    if name in DATASETS and not Path(reference).is_file():
        return _named_reference(name, source_language, target_language), True
    return _file_reference(Path(reference)), False


def _file_reference(path: Path) -> list[str]:
    if not path.exists():
        close = difflib.get_close_matches(str(path), DATASETS, n=1, cutoff=0.75)
        if str(path) == "newstest2014":
            close = ["wmt14/full"]
        hint = f", did you mean {close[0]}?" if close else ": check its name and folder"
        raise UserError(f"{path} is missing, and no test set of sacreBLEU has that name{hint}")
    return list(read_lines(path))


def _named_reference(name: str, source_language: str | None, target_language: str) -> list[str]:
    if source_language is None:
        raise UserError(
            f"{name} is a test set: say what was translated from as well, such as --from en"
        )
    dataset = DATASETS[name]
    pair = f"{source_language}-{target_language}"
    if pair not in dataset.langpairs:
        raise UserError(f"the test set {name} has no {pair}; it has {', '.join(dataset.langpairs)}")
    fields, references = _cached(dataset, pair)
    if len(references) != 1:
        raise UserError(
            f"{name} {pair} has {len(references)} references, and one is scored against: write it "
            f"to a file with `sacrebleu -t {name} -l {pair} --echo FIELD` "
            f"(fields: {', '.join(fields)})"
        )
    lines, sources = (
        [line.rstrip() for line in read_lines(Path(file))]
        for file in (references[0], fields["src"])
    )
    if not lines or len(lines) != len(sources):
        raise UserError(
            f"the copy of {name} {pair} in {dataset._outdir} is damaged ({len(sources)} source "
            f"sentences, {len(lines)} references): delete that folder, and it is downloaded again"
        )
    return lines


def _cached(dataset: Any, pair: str) -> tuple[dict[str, str], list[str]]:
    """Files of a test set by field, and those of its references; fetched if not in the cache."""
    try:
        with _quiet_and_patient():
            files = dataset.get_files(pair)
            fields = dict(zip(dataset.fieldnames(pair), files, strict=True))
            return fields, dataset.get_reference_files(pair)
    except portalocker.LockException as error:
        raise UserError(
            f"sacreBLEU cannot lock {dataset._rawdir} ({error.args[-1]}): wait for the process "
            f"that downloads {dataset.name} there, or set SACREBLEU to a folder on a disk that has "
            "file locks"
        ) from None
    except (
        EOFError,
        OSError,
        SystemExit,  # sacreBLEU's answer to a wrong checksum
        http.client.HTTPException,
        tarfile.TarError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        reason = "wrong checksum" if isinstance(error, SystemExit) else str(error)
        archives = [
            f"save {address} as {dataset._get_tarball_filename(address)}"
            for address in dataset.data or []
        ]
        raise UserError(
            f"the test set {dataset.name} {pair} is not in sacreBLEU's cache and cannot be fetched "
            f"({' '.join(reason.split())}): in {dataset._rawdir}, {' and '.join(archives)} and "
            "unpack it there; or set SACREBLEU to a cache folder that holds the test set"
        ) from None


@contextlib.contextmanager
def _quiet_and_patient() -> Iterator[None]:
    """Keep sacreBLEU's own lines away, and its downloads from waiting for ever."""
    logger = logging.getLogger("sacrebleu")
    disabled, seconds = logger.disabled, socket.getdefaulttimeout()
    logger.disabled = True
    socket.setdefaulttimeout(CONNECT_SECONDS)
    try:
        yield
    finally:
        logger.disabled = disabled
        socket.setdefaulttimeout(seconds)


def _unequal(hypothesis: Path, count: int, reference: str, wanted: int) -> UserError:
    if sorted([count, wanted]) == sorted(NEWSTEST2014.values()):
        hint = (
            "German-English newstest2014 has "
            + " and ".join(f"{n} sentences as {name}" for name, n in NEWSTEST2014.items())
            + ", and one of each is here"
        )
    else:
        hint = "line i of both must be the same sentence"
    return UserError(f"{hypothesis} has {count} lines but {reference} has {wanted} lines: {hint}")
