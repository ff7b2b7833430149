"""Stage download: have the raw text here, verified, and say what it is in data/raw.

    python -m pipeline.download

Dataset phrasebook is generated into data/raw; dataset files stays in data.folder; any other is
fetched into download.folder, as data.folder's registry describes it. Archives are not unpacked:
every text is read through once, its lines counted and summed, and data/raw/provenance.json names
it, so that later stages read exactly this.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import phrasebook
from pipeline import stage
from seq2sweep import config as configuration
from seq2sweep import console
from seq2sweep.data import download, files, reading, sources
from seq2sweep.data.archives import Text
from seq2sweep.data.download import receipts
from seq2sweep.errors import UserError
from seq2sweep.storage import atomic


def work(config: configuration.Config) -> None:
    """Write data/raw with its provenance.json."""
    fetched = None
    if config.data.dataset not in ("phrasebook", "files"):
        # Before data/.raw.partial exists: this may take hours, and a kill would leave it behind.
        fetched = _fetch(config)
    with atomic.whole_folder(stage.RAW) as folder:
        if fetched is not None:
            provenance = _from_registry(*fetched, config)
        elif config.data.dataset == "files":
            provenance = _own_files(config.data)
        else:
            provenance = _generate(config.data, folder)
        languages = {"source": config.data.source, "target": config.data.target}
        head = {"dataset": config.data.dataset, "languages": languages}
        stage.write_json(folder / "provenance.json", head | provenance)
    pairs = ", ".join(
        f"{split} {sum(corpus['lines'] for corpus in corpora):,}"
        for split, corpora in provenance["splits"].items()
    )
    console.say(f"sentence pairs: {pairs}")


# --- data sets of the registry -----------------------------------------------------------------


def _fetch(
    config: configuration.Config,
) -> tuple[sources.Dataset, dict[str, dict[str, Any]]]:
    """The data set, and size and sums of its archives, which are here now."""
    data = config.data
    dataset = sources.load(Path(data.folder), data.dataset, data.source, data.target)
    console.say(
        f"{dataset.name}, about {dataset.pairs:,} training pairs: {dataset.about}\n"
        f"licence: {dataset.licence}"
    )
    settings = config.download
    folder = Path(settings.folder)
    return dataset, download.fetch(
        dataset.archives, folder, settings.mirrors, parallel=settings.parallel
    )


def _from_registry(
    dataset: sources.Dataset, sums: dict[str, dict[str, Any]], config: configuration.Config
) -> dict[str, Any]:
    folder = Path(config.download.folder)
    noted = {archive.file: receipts.texts(folder, archive) for archive in dataset.archives}
    splits: dict[str, list[dict[str, Any]]] = {}
    for split, corpora in dataset.splits.items():
        splits[split] = []
        for corpus in corpora:
            file, member = corpus.source
            lines = corpus.lines or noted[file].get(member or "", {}).get("lines")
            entry = _read_through(corpus.name, corpus.texts(folder), folder, lines)
            splits[split].append(entry)
            if lines not in (None, entry["lines"]):
                where = "the registry says" if corpus.lines else "the first time it had"
                raise UserError(
                    f"{corpus.texts(folder)[0]} has {entry['lines']:,} lines where {where} "
                    f"{lines:,}: its archive is whole, so the registry, or this program, is wrong; "
                    f"fix {config.data.folder}, or remove {corpus.source[0]}.json beside it"
                )
    for archive in dataset.archives:
        texts = {
            side["member"] or "": {"lines": entry["lines"], "sha256": side["sha256"]}
            for corpora_read in splits.values()
            for entry in corpora_read
            for side in (entry["source"], entry["target"])
            if side["file"] == archive.file
        }
        receipts.note_texts(folder, archive, texts)
    archives = {
        archive.file: {key: sums[archive.file][key] for key in ("bytes", "sha256")}
        for archive in dataset.archives
    }
    return {"licence": dataset.licence, "archives": archives, "splits": splits}


# --- one's own files ---------------------------------------------------------------------------


def _own_files(config: configuration.DataConfig) -> dict[str, Any]:
    origin = Path(config.folder)
    if not origin.is_dir():
        raise UserError(
            f"data.folder is {config.folder}, which is not a folder: put the files there"
        )
    named: dict[str, tuple[str, ...]] = {
        "train": config.files.train,
        "valid": config.files.valid,
        "test": config.files.test,
    }
    for split, names in named.items():
        for name in names:
            _require_inside(name, split)
    splits: dict[str, list[dict[str, Any]]] = {}
    known: dict[str, str] = {}
    for split, (source, target) in named.items():
        entry = _read_through(split, (Text(origin / source), Text(origin / target)), origin)
        for side in files.SIDES:
            name = f"{entry[side]['file']} (data.files.{split}, {side})"
            other = known.setdefault(entry[side]["sha256"], name)
            if other != name:
                raise UserError(
                    f"{name} holds the same text as {other}, line by line: give each side of each "
                    f"split a text of its own in {config.folder}"
                )
        splits[split] = [entry]
    return {"archives": {}, "splits": splits}


def _require_inside(name: str, split: str) -> None:
    # By name only: a link inside the folder may well point elsewhere, as DVC's own links do.
    path = os.path.normpath(name)
    if os.path.isabs(path) or path.split(os.sep)[0] == os.pardir:
        raise UserError(
            f"data.files.{split} names {name}, which is outside of data.folder: "
            "DVC would miss its changes; move it inside"
        )


# --- the phrasebook ----------------------------------------------------------------------------


def _generate(data: configuration.DataConfig, folder: Path) -> dict[str, Any]:
    config = data.phrasebook
    sources.check_phrasebook(config)
    counts: dict[phrasebook.Split, int]
    counts = {"train": config.train, "valid": config.valid, "test": config.test}
    phenomena: list[str] = []
    splits = {}
    for split in counts:
        source, target = (folder / files.text_name(split, side) for side in files.SIDES)
        written = files.write_pairs(source, target, _pairs(split, counts[split], data, phenomena))
        assert written == counts[split]
        sums = {
            side: atomic.sha256(path) for side, path in (("source", source), ("target", target))
        }
        splits[split] = [_entry("phrasebook", written, source.name, target.name, sums)]
    files.write_lines(folder / files.PHENOMENA, phenomena)
    return {"seed": config.seed, "archives": {}, "splits": splits}


def _pairs(
    split: phrasebook.Split,
    count: int,
    data: configuration.DataConfig,
    phenomena: list[str],
) -> Iterator[tuple[str, str]]:
    """Generated pairs; those of test leave their tags in `phenomena`."""
    generated = phrasebook.generate(split, count, data.phrasebook.seed)
    for pair in console.progress(generated, f"generate {split}", "pairs", count):
        if split == "test":
            phenomena.append(" ".join(pair.phenomena))
        sides = {"en": pair.source, "de": pair.target}
        yield sides[data.source.lower()], sides[data.target.lower()]


# --- what a text is ----------------------------------------------------------------------------


def _read_through(
    name: str, texts: tuple[Text, Text], root: Path, lines: int | None = None
) -> dict[str, Any]:
    """A corpus as provenance.json describes it; UserError if its sides do not fit together.

    `lines`: how many there will be, as far as is known, for the progress bar.
    """
    sums = reading.TextSum(), reading.TextSum()
    pairs: Iterable[tuple[str, str]] = reading.read_pairs(*texts)
    for source, target in console.progress(pairs, f"read {name}", "pairs", lines):
        sums[0].add(source)
        sums[1].add(target)
    digests = {side: sum_.sha256() for side, sum_ in zip(files.SIDES, sums, strict=True)}
    source_file, target_file = (text.path.relative_to(root).as_posix() for text in texts)
    members = texts[0].member, texts[1].member
    return _entry(name, sums[0].lines, source_file, target_file, digests, members)


def _entry(
    name: str,
    lines: int,
    source: str,
    target: str,
    sums: dict[str, str],
    members: tuple[str | None, str | None] = (None, None),
) -> dict[str, Any]:
    return {
        "name": name,
        "lines": lines,
        "source": {"file": source, "member": members[0], "sha256": sums["source"]},
        "target": {"file": target, "member": members[1], "sha256": sums["target"]},
    }


if __name__ == "__main__":
    stage.run("download", "the raw text of train, valid and test, verified", work)
