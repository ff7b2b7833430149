"""The registry of data sets: which archives hold what, and where they can be had.

Every .yaml file of a folder (`data.folder`; ours is `registry/` here) describes archives, by the
name of their file, and data sets made of them. A text in it is an archive's file, or one of its
members; `{language}` in its name stands for the language wanted.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import phrasebook
from seq2sweep import yaml_text
from seq2sweep.config import PhrasebookConfig, is_address
from seq2sweep.data.archives import Text
from seq2sweep.data.files import SIDES, SPLITS
from seq2sweep.errors import UserError
from seq2sweep.paths import read_text

REGISTRY = Path(__file__).parent / "registry"
ALGORITHMS = {"sha256": 64, "md5": 32}
"""Names of check sums, and how many hexadecimal digits each has."""


@dataclass(frozen=True)
class Archive:
    """A file to be had from any of `addresses`, the first that works; all give the same bytes.

    by_receipt: size or sum are not the registry's, but those of the first download.
    """

    file: str
    addresses: tuple[str, ...]
    bytes: int | None
    algorithm: str | None
    digest: str | None
    by_receipt: bool = False


@dataclass(frozen=True)
class Corpus:
    """Two aligned texts: line i of `source` and of `target` is one sentence pair.

    Each is the name of an archive's file and of a member of it (None: the file is the text).
    """

    name: str
    source: tuple[str, str | None]
    target: tuple[str, str | None]
    lines: int | None

    def texts(self, folder: Path) -> tuple[Text, Text]:
        """Both texts, of archives that lie in the folder."""
        (source, source_member), (target, target_member) = self.source, self.target
        return Text(folder / source, source_member), Text(folder / target, target_member)


@dataclass(frozen=True)
class Dataset:
    """What a data set is made of, for one direction of translation.

    pairs: about how many there are to train on, for plans.
    """

    name: str
    about: str
    licence: str
    pairs: int
    archives: tuple[Archive, ...]
    splits: Mapping[str, tuple[Corpus, ...]]


def load(folder: Path, name: str, source: str, target: str) -> Dataset:
    """A data set for translation from one language into another.

    UserError for a name or a language that the registry does not have, and for mistakes in it.
    """
    registry = _read(folder)
    if name not in registry["datasets"]:
        raise UserError(_unknown(name, folder, registry))
    where, described = registry["datasets"][name]
    reader = _Reader(where, f"datasets.{name}")
    reader.only(described, "languages", "about", "licence", "pairs", *SPLITS)
    languages = reader.take(described, "languages", list)
    if not all(isinstance(language, str) for language in languages):
        raise reader.wrong(f"has languages {languages}: put each in quotes (no means false)")
    if source not in languages or target not in languages or source == target:
        raise UserError(
            f"data.source {source} and data.target {target}: {name} has "
            f"{' and '.join(map(str, languages))}; choose two of them"
        )
    pair = {"source": source, "target": target}
    splits = {
        split: tuple(
            _corpus(_Reader(where, f"datasets.{name}.{split}"), entry, pair)
            for entry in reader.take(described, split, list)
        )
        for split in SPLITS
    }
    for split, corpora in splits.items():
        if len({corpus.name for corpus in corpora}) < len(corpora):
            raise reader.wrong(f"has a name twice in {split}; counts are kept by name")
    needed = {
        text[0]: None for split in splits.values() for c in split for text in (c.source, c.target)
    }
    return Dataset(
        name,
        reader.take(described, "about", str),
        reader.take(described, "licence", str),
        reader.take(described, "pairs", int),
        tuple(_archive(registry["archives"], file, where) for file in needed),
        splits,
    )


def mirrored(address: str, mirrors: Mapping[str, str]) -> str:
    """The address with its longest beginning that has a mirror replaced by that mirror."""
    beginnings = [beginning for beginning in mirrors if address.startswith(beginning)]
    if not beginnings:
        return address
    longest = max(beginnings, key=len)
    return mirrors[longest] + address.removeprefix(longest)


# --- the files of the registry -----------------------------------------------------------------


def check_phrasebook(config: PhrasebookConfig) -> None:
    """UserError where more pairs are asked for than there are."""
    for split, most in phrasebook.CAPACITY.items():
        if (count := getattr(config, split)) > most:
            raise UserError(
                f"data.phrasebook.{split} is {count} but the phrasebook holds at most {most} "
                "different sentences for it; lower it"
            )


@dataclass(frozen=True)
class _Reader:
    """Takes values out of a registry file, and says where a wrong one stands."""

    path: Path
    key: str

    def take(self, values: Any, key: str, kind: type, optional: bool = False) -> Any:
        if not isinstance(values, Mapping):
            raise self.wrong("must be a section with keys of its own")
        if optional and values.get(key) is None:
            return None
        if key not in values:
            raise self.wrong(f"has no {key}; add it")
        value = values[key]
        good = isinstance(value, kind) and not isinstance(value, bool) and value not in ("", [])
        if not good or (kind is int and value < 0):
            raise self.wrong(f"has {value!r} as {key}, which must be a {kind.__name__}")
        return value

    def only(self, values: Any, *keys: str) -> None:
        """Refuse keys that mean nothing: a mistyped check sum would check nothing."""
        odd = [str(key) for key in values if key not in keys] if isinstance(values, Mapping) else []
        if odd:
            raise self.wrong(f"has {odd[0]}, which is none of {', '.join(keys)}")

    def wrong(self, problem: str) -> UserError:
        return UserError(f"{self.path}: {self.key} {problem}")


def _read(folder: Path) -> dict[str, dict[str, Any]]:
    """All archives by file, and all data sets by name, each with the path of its yaml file."""
    registry: dict[str, dict[str, Any]] = {"archives": {}, "datasets": {}}
    for path in sorted(folder.glob("*.yaml")):
        try:
            content = yaml_text.read_yaml(read_text(path, "check data.folder"))
        except yaml_text.ERRORS as error:
            raise UserError(yaml_text.problem(error, str(path))) from None
        for section, known in registry.items():
            entries = content.get(section, {}) if isinstance(content, Mapping) else None
            if not isinstance(entries, Mapping):
                raise UserError(f"{path}: {section} must be a section with keys of its own")
            for name, entry in entries.items():
                if name in known:
                    raise UserError(f"{path}: {section}.{name} is in {known[name][0]} already")
                known[name] = (path, entry)
    return registry


def _unknown(name: str, folder: Path, registry: Mapping[str, Mapping[str, Any]]) -> str:
    known = ["phrasebook", "files", *registry["datasets"]]
    close = difflib.get_close_matches(name, known, n=1)
    if not registry["datasets"]:
        return (
            f"data.dataset is {name}, but data.folder ({folder}) holds no registry of data sets; "
            "that of seq2sweep is src/seq2sweep/data/registry"
        )
    hint = f", did you mean {close[0]}?" if close else f"; known: {', '.join(known)}"
    return f"data.dataset is {name}, which {folder} does not describe{hint}"


def _corpus(reader: _Reader, entry: Any, languages: Mapping[str, str]) -> Corpus:
    reader.only(entry, "name", "archive", "members", "lines")
    name = reader.take(entry, "name", str)
    archive = reader.take(entry, "archive", str)
    members = entry.get("members")
    if not isinstance(members, Mapping):
        members = dict.fromkeys(SIDES, reader.take(entry, "members", str, optional=True))
    texts = {}
    for side, language in languages.items():
        file = archive.replace("{language}", language)
        member = reader.take(members, side, str, optional=True)
        texts[side] = (file, member and member.replace("{language}", language))
    lines = reader.take(entry, "lines", int, optional=True)
    return Corpus(name, texts["source"], texts["target"], lines)


def _archive(archives: Mapping[str, Any], file: str, where: Path) -> Archive:
    if file not in archives:
        raise UserError(f"{where}: archives has no {file}, which a data set is made of; add it")
    path, entry = archives[file]
    reader = _Reader(path, f"archives.{file}")
    if file in ("", ".", "..") or "/" in file or "\\" in file:
        raise reader.wrong("must be the name of a file, without a folder")
    if file.endswith((".json", ".partial")):
        raise reader.wrong("has a name as receipts and partial downloads have")
    reader.only(entry, "addresses", "bytes", *ALGORITHMS)
    addresses = reader.take(entry, "addresses", list)
    for address in addresses:
        if not isinstance(address, str) or not is_address(address):
            raise reader.wrong(f"has {address!r} as an address, which must begin as https://")
    size = reader.take(entry, "bytes", int, optional=True)
    sums = [name for name in ALGORITHMS if reader.take(entry, name, str, optional=True)]
    digest = entry[sums[0]].lower() if sums else None
    if digest is not None and not re.fullmatch(f"[0-9a-f]{{{ALGORITHMS[sums[0]]}}}", digest):
        raise reader.wrong(f"has a {sums[0]} of {len(digest)} characters, which is none")
    return Archive(file, tuple(addresses), size, sums[0] if sums else None, digest)
