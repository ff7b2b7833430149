"""A corpus of one's own where it lies: which files are whose side of which split."""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from seq2sweep.config.fields import is_language
from seq2sweep.data import tables
from seq2sweep.data.files import SIDES, SPLITS
from seq2sweep.errors import UserError
from seq2sweep.paths import read_bytes

WORDS = {
    "train": "train", "training": "train", "test": "test",
    "valid": "valid", "validation": "valid", "val": "valid", "dev": "valid",
}  # fmt: skip
"""What a name says of the split: the first of its words that is one of these."""
SIDE_WORDS = {"source": ("source", "src"), "target": ("target", "tgt")}
SPLIT_DATASETS = "dataset_dict.json"
"""In a folder of `DatasetDict.save_to_disk`: a folder a split."""
_TEXT = re.compile(r"(?P<stem>.+?)\.(?P<language>[^.]+)(\.sgm)?(\.gz)?")
_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d+)-of-(?P<count>\d+)\.parquet")


@dataclass(frozen=True)
class Found:
    """folder: for `data.folder`. files: source and target, by split, as `data.files` has them.
    unused: names that look like text, but belong to no split. absent: shards that the names of
    others count, and that are not there: the first of each table, and how many more."""

    folder: Path
    languages: tuple[str, str]
    files: Mapping[str, tuple[str, str]]
    unused: tuple[str, ...] = ()
    absent: tuple[tuple[str, int], ...] = ()


Languages = tuple[str | None, str | None]
"""Codes that the user gave."""


def find(source: str, target: str | None, languages: Languages) -> Found:
    """What one or two names on the command line stand for.

    Two: files of text, or TABLE:COLUMN. One: a folder, a table, or the beginning of both names.
    Raises UserError for what is not there, and where there is more than one answer.
    """
    if target is not None:
        return _two(source, target, languages)
    path = Path(source)
    if path.is_dir():
        if (path / tables.STATE).exists():
            return _tables(path, {"train": "."}, languages=languages)
        if (path / SPLIT_DATASETS).exists():
            return _tables(path, *_by_split(_datasets(path)), languages=languages)
        if found := _parquet(path):
            splits, unused = _by_split(found)
            absent = [missing for split in splits.values() for missing in found[split]]
            return replace(_tables(path, splits, unused, languages=languages), absent=tuple(absent))
        return _texts(path, _pairs(path), languages)
    if tables.is_table(path):
        return _tables(path.parent, {"train": path.name}, languages=languages)
    if (beside := _pairs(path.parent).get(path.name)) is None:
        raise UserError(
            f"{source} is no folder, no .parquet or .arrow file, and no beginning of two names "
            f"such as {path.name}.en and {path.name}.de: name both files"
        )
    codes = _direction(source, sorted(beside), languages)
    # It was named, so its words say nothing: news.dev too is for training.
    return Found(path.parent, codes, {"train": (beside[codes[0]], beside[codes[1]])})


def _two(source: str, target: str, languages: Languages) -> Found:
    names = source, target
    split = [name.rpartition(":") if not Path(name).exists() else ("", "", name) for name in names]
    paths = [Path(table or rest) for table, _, rest in split]
    for (_, colon, _), name, path in zip(split, names, paths, strict=True):
        if not path.exists():
            raise UserError(f"{name} is missing: check its name and folder")
        if path.is_dir() and not colon:
            raise UserError(f"{name} is a folder: name two files, or one folder that has both")
    if source == target:
        raise UserError(f"{source} is named twice: name the source, then the target")
    places = (path if path.is_dir() else path.parent for path in paths)
    folder = Path(os.path.commonpath([os.path.abspath(place) for place in places]))
    guesses, files = [], []
    for (_, colon, column), path in zip(split, paths, strict=True):
        name = os.path.relpath(path, folder)
        files.append(f"{name}:{column}" if colon else name)
        text = _TEXT.fullmatch(path.name)
        guesses.append(column.rpartition(".")[2] if colon else text["language"] if text else "")
    codes = []
    for given, guess, name, option in zip(
        languages, guesses, names, ("--from", "--to"), strict=True
    ):
        if given is None and not is_language(guess):
            raise UserError(f"{name} does not say its language: add {option} LANGUAGE")
        codes.append(given or guess)
    return Found(folder, (codes[0], codes[1]), {"train": (files[0], files[1])})


# --- texts ---------------------------------------------------------------------------------------


def _pairs(folder: Path) -> dict[str, dict[str, str]]:
    """Files of text by their stem and language, of stems with at least two languages."""
    found: dict[str, dict[str, str]] = {}
    names = (
        sorted(path.name for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []
    )
    for name in names:
        text = _TEXT.fullmatch(name)
        if text and is_language(text["language"]):
            texts = found.setdefault(text["stem"], {})
            if other := texts.get(text["language"]):
                raise UserError(f"{folder} has {other} and {name}: remove one of them")
            texts[text["language"]] = name
    return {stem: texts for stem, texts in found.items() if len(texts) > 1}


def _texts(folder: Path, stems: Mapping[str, Mapping[str, str]], given: Languages) -> Found:
    if not stems:
        raise UserError(
            f"{folder} has no two texts of one name in two languages, such as train.en and "
            "train.de (.gz too), and no .parquet files: name both files"
        )
    known = sorted({language for texts in stems.values() for language in texts})
    codes = _direction(str(folder), known, given)
    both = {s: texts for s, texts in stems.items() if all(code in texts for code in codes)}
    splits, unused = _by_split(both)
    files = {split: (both[stem][codes[0]], both[stem][codes[1]]) for split, stem in splits.items()}
    return Found(folder, codes, files, unused)


def _direction(where: str, known: Iterable[str], given: Languages) -> tuple[str, str]:
    """The two languages, which the user must have given: nothing else says which is translated."""
    known = list(known)
    for code in given:
        if code is not None and code not in known:
            raise UserError(f"{where} has no {code}: it has {', '.join(known)}")
    source, target = given
    if len(known) == 2:  # one of them says all
        source = source or next((code for code in known if target and code != target), None)
        target = target or next((code for code in known if source and code != source), None)
    if source is None or target is None:
        example = " ".join(map("{} {}".format, ("--from", "--to"), [*known, "en", "de"][:2]))
        raise UserError(
            f"{where} has {', '.join(known) or 'no language'}: say what is translated into what, "
            f"such as {example}"
        )
    return source, target


def _by_split(stems: Iterable[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """The stem of each split, and stems of none."""
    found: dict[str, str] = {}
    others = []
    for stem in stems:
        words = re.split("[^a-z]+", stem.lower())
        split = next((WORDS[word] for word in words if word in WORDS), None)
        if split is None:
            others.append(stem)
        elif split in found:
            raise UserError(
                f"{found[split]} and {stem} are both {split} by their names: leave one of them "
                "there, or name two files"
            )
        else:
            found[split] = stem
    if "train" not in found and len(others) == 1:
        found["train"] = others.pop()
    if "train" not in found:
        raise UserError(
            f"none of {', '.join([*found.values(), *others])} is train by its name: rename it, or "
            "name two files"
        )
    return {split: found[split] for split in SPLITS if split in found}, tuple(others)


# --- tables --------------------------------------------------------------------------------------


def _datasets(folder: Path) -> list[str]:
    """The folders of `DatasetDict.save_to_disk`."""
    path = folder / SPLIT_DATASETS
    try:
        splits = [str(split) for split in json.loads(read_bytes(path))["splits"]]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise UserError(f"{path} is damaged: call save_to_disk again") from None
    for split in splits:
        if "/" in split or not (folder / split / tables.STATE).exists():
            raise UserError(f"{path} names {split!r}, which is no saved data set beside it")
    return splits


def _parquet(folder: Path) -> dict[str, list[tuple[str, int]]]:
    """Parquet files of a folder; shards of one table as a pattern, with what is `absent` of it."""
    found: dict[str, list[tuple[str, int]]] = {}
    sets: dict[tuple[str, str], set[str]] = {}
    for name in sorted(path.name for path in folder.glob("*.parquet")):
        if shard := _SHARD.fullmatch(name):
            sets.setdefault((shard["stem"], shard["count"]), set()).add(shard["number"])
        else:
            found[name] = []
    for (stem, count), numbers in sets.items():
        digits = {len(number) for number in numbers}
        any_number = "?" * digits.pop() if len(digits) == 1 else "[0-9]*"
        pattern = f"{glob.escape(stem)}-{any_number}-of-{count}.parquet"
        for path in folder.glob(pattern):
            if (shard := _SHARD.fullmatch(path.name)) and shard["stem"] != stem:
                raise UserError(
                    f"{folder}: {path.name} would be taken for a shard of {stem}: rename it"
                )
        found[pattern] = []
        there = {int(number) for number in numbers}
        first = 0 if 0 in there or int(count) not in there else 1  # some count from one
        expected = range(first, first + int(count))
        if left := int(count) - sum(number in expected for number in there):
            number = next(number for number in expected if number not in there)
            width = min(map(len, numbers))
            found[pattern] = [(f"{stem}-{number:0{width}}-of-{count}.parquet", left - 1)]
    return found


def _end(column: str) -> str:
    """Of `translation.en`, en."""
    return column.rpartition(".")[2]


def _tables(
    folder: Path,
    splits: Mapping[str, str],
    unused: tuple[str, ...] = (),
    *,
    languages: Languages = (None, None),
) -> Found:
    first = tables.shards(folder / splits["train"])[0]
    known = tables.columns(first)
    # As Hugging Face has it; other structs, such as titles, may have the same languages.
    inside = [name for name in known if name.startswith("translation.")]
    if sum(is_language(_end(name)) for name in inside) > 1:
        known = inside
    ends = {_end(name): name for name in known}
    columns = [ends[word] for side in SIDES for word in SIDE_WORDS[side] if word in ends]
    if len(columns) == 2 and None not in languages:
        codes = str(languages[0]), str(languages[1])
    else:
        codes = _direction(
            f"{first}, with columns {', '.join(known) or 'without text'},",
            [end for end in ends if is_language(end)],
            languages,
        )
        columns = [ends[code] for code in codes]
    for column in columns:
        if other := next((n for n in known if n != column and _end(n) == _end(column)), None):
            raise UserError(
                f"{first} has {other} and {column}: name source and target, each as TABLE:COLUMN"
            )
    files = {split: (f"{t}:{columns[0]}", f"{t}:{columns[1]}") for split, t in splits.items()}
    return Found(folder, codes, files, unused)
