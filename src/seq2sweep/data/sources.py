"""The registry of data sets: which archives hold what, and where they can be had.

Every .yaml file of a folder (`data.folder`; ours is `registry/` here) describes archives, by the
name of their file, and data sets made of them. A text in it is an archive's file, or one of its
members; `{language}` in its name stands for the language wanted.
"""

from __future__ import annotations

import difflib
import os.path
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import phrasebook
from seq2sweep import yaml_text
from seq2sweep.config import PhrasebookConfig, is_address
from seq2sweep.data.archives import Text
from seq2sweep.data.files import SIDES, SPLITS
from seq2sweep.errors import UserError
from seq2sweep.paths import mismatch, read_text

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
    path, entry = registry["datasets"][name]
    where = f"{path}: datasets.{name}"
    described = _section(where, entry, _DATASET)
    languages = described["languages"]
    if source not in languages or target not in languages or source == target:
        raise UserError(
            f"data.source {source} and data.target {target}: {name} has "
            f"{' and '.join(languages)}; choose two of them"
        )
    pair = {"source": source, "target": target}
    splits = {
        split: tuple(_corpus(f"{where}.{split}", entry, pair) for entry in described[split])
        for split in SPLITS
    }
    for split, corpora in splits.items():
        if len({corpus.name for corpus in corpora}) < len(corpora):
            raise UserError(f"{where} has a name twice in {split}; counts are kept by name")
    needed = {
        text[0]: None for split in splits.values() for c in split for text in (c.source, c.target)
    }
    return Dataset(
        name,
        described["about"],
        described["licence"],
        described["pairs"],
        tuple(_archive(registry["archives"], file, path) for file in needed),
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


def check_noticed(folder: Path) -> None:
    """Raises UserError for what is in data.folder and DVC does not look at: no change there would
    be noticed.

    It leaves out what is behind a link to a folder, and of folders in the project those that are
    DVC repositories of their own.
    """
    for path in folder.rglob("*"):
        if path.is_symlink() and path.is_dir():
            raise UserError(
                f"{path} is a link to a folder, and changes in it would not be noticed: link "
                "data.folder itself, or copy the folder to there"
            )
        if path.name == ".dvc" and Path.cwd() in Path(os.path.abspath(path.parent)).parents:
            raise UserError(
                f"{path.parent} is a DVC repository of its own, and changes in it may not be "
                "noticed: move it out of this project, or copy its texts to another folder"
            )


def check_names(folder: Path) -> None:
    """Raises UserError for a name in data.folder, its own too, that is not UTF-8: neither DVC nor
    params.yaml can hold it."""
    for path in (folder, *sorted(folder.rglob("*"))):
        if re.search("[\ud800-\udfff]", str(path)):
            raise UserError(f"{path} has a name that is not UTF-8: rename it in UTF-8")


def check_inside(key: str, names: Iterable[str]) -> None:
    """UserError for one of the user's own files, which a key names, outside of data.folder."""
    for name in names:
        # By name only: a link inside may well point elsewhere, as DVC's own links do.
        # What is behind a colon may be a column.
        path = os.path.normpath(name.rpartition(":")[0] or name)
        if os.path.isabs(path) or path.split(os.sep)[0] == os.pardir:
            raise UserError(
                f"{key} names {name}, which is outside of data.folder: "
                "DVC would miss its changes; move it inside"
            )


def check_there(key: str, names: Iterable[str], folder: str) -> None:
    """As `check_inside` and `check_noticed`, and UserError for one that is missing. folder:
    data.folder, where a link may have come after the stage download."""
    check_noticed(Path(folder))
    for name in names:
        check_inside(key, [name])
        if not (path := Path(folder) / name).exists():
            raise UserError(f"{path} is missing: check data.folder and {key}")


def check_phrasebook(config: PhrasebookConfig) -> None:
    """UserError where more pairs are asked for than there are."""
    for split, most in phrasebook.CAPACITY.items():
        if (count := getattr(config, split)) > most:
            raise UserError(
                f"data.phrasebook.{split} is {count} but the phrasebook holds at most {most} "
                "different sentences for it; lower it"
            )


# What an entry of each kind may say; "?" is before what it may leave out.
_DATASET: dict[str, Any] = {"languages": [str], "about": str, "licence": str, "pairs": int}
_DATASET |= {split: [dict] for split in SPLITS}
_CORPUS = {"name": str, "archive": str, "?members": (str, dict), "?lines": int}
_MEMBERS = {f"?{side}": str for side in SIDES}
_ARCHIVE = {"addresses": [str], "?bytes": int} | {f"?{name}": str for name in ALGORITHMS}


def _section(where: str, values: Any, shape: Mapping[str, Any]) -> dict[str, Any]:
    """The values of an entry, None for what it leaves out; UserError where it is not as `shape`.

    A key that means nothing is refused: a mistyped check sum would check nothing.
    """
    if not isinstance(values, Mapping):
        raise UserError(f"{where} must be a section with keys of its own")
    known = {key.removeprefix("?"): kind for key, kind in shape.items()}
    if odd := [str(key) for key in values if key not in known]:
        raise UserError(f"{where} has {odd[0]}, which is none of {', '.join(known)}")
    given = {key: value for key, value in values.items() if value is not None}
    if wrong := mismatch(given, {k: known[k] for k in known if k in given or k in shape}):
        raise UserError(f"{where}: {wrong}; fix it (a text such as no needs quotes)")
    for key, value in given.items():
        if value in ("", [], {}) or (isinstance(value, int) and value < 0):
            raise UserError(f"{where} has {value!r} as {key}")
    return dict.fromkeys(known) | given


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
                if not isinstance(name, str):
                    raise UserError(f"{path}: {section}.{name} must be text: put it into quotes")
                if name in known:
                    raise UserError(f"{path}: {section}.{name} is in {known[name][0]} already")
                known[name] = (path, entry)
    return registry


def _unknown(name: str, folder: Path, registry: Mapping[str, Mapping[str, Any]]) -> str:
    known = ["phrasebook", "files", *registry["datasets"]]
    close = difflib.get_close_matches(name, known, n=1)
    if not registry["datasets"] and not close:
        return (
            f"data.dataset is {name}, but data.folder ({folder}) holds no registry of data sets; "
            "that of seq2sweep is src/seq2sweep/data/registry"
        )
    hint = f", did you mean {close[0]}?" if close else f"; known: {', '.join(known)}"
    return f"data.dataset is {name}, which {folder} does not describe{hint}"


def _corpus(where: str, entry: Any, languages: Mapping[str, str]) -> Corpus:
    described = _section(where, entry, _CORPUS)
    members = described["members"]
    if not isinstance(members, Mapping):
        members = dict.fromkeys(SIDES, members)
    members = _section(where, members, _MEMBERS)
    source, target = (
        (
            described["archive"].replace("{language}", language),
            members[side] and members[side].replace("{language}", language),
        )
        for side, language in languages.items()
    )
    return Corpus(described["name"], source, target, described["lines"])


def _archive(archives: Mapping[str, Any], file: str, registry: Path) -> Archive:
    if file not in archives:
        raise UserError(f"{registry}: archives has no {file}, which a data set is made of; add it")
    path, entry = archives[file]
    where = f"{path}: archives.{file}"
    if file in ("", ".", "..") or "/" in file or "\\" in file:
        raise UserError(f"{where} must be the name of a file, without a folder")
    if file.endswith((".json", ".partial")):
        raise UserError(f"{where} has a name as receipts and partial downloads have")
    described = _section(where, entry, _ARCHIVE)
    for address in described["addresses"]:
        if not is_address(address):
            raise UserError(f"{where} has {address!r} as an address, which must begin as https://")
    algorithm, digest = None, None
    for name, digits in reversed(ALGORITHMS.items()):  # so that the first of them has its way
        if described[name] is not None:
            algorithm, digest = name, described[name].lower()
            if not re.fullmatch(f"[0-9a-f]{{{digits}}}", digest):
                raise UserError(f"{where} has a {name} of {len(digest)} characters, which is none")
    return Archive(file, tuple(described["addresses"]), described["bytes"], algorithm, digest)
