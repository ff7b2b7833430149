"""Stage download: have the raw text here, verified, and say what it is in data/raw.

    python -m pipeline.download

Dataset phrasebook is generated into data/raw; datasets files and ptb stay in data.folder, but for
pairs that are held out of training: data/raw gets a copy. Any other is fetched into
download.folder, as data.folder's registry describes it. Archives are not unpacked: every text is
read through once, its lines counted and summed, and data/raw/provenance.json names it, so that
later stages read exactly this.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import phrasebook
from seq2sweep import config as configuration
from seq2sweep import console, project_files
from seq2sweep.data import download, files, reading, sources
from seq2sweep.data.archives import Text
from seq2sweep.data.download import receipts
from seq2sweep.data.own import hold_out, own_files
from seq2sweep.data.treebank import corpora, unlabelled
from seq2sweep.errors import UserError
from seq2sweep.jobs import entrypoint
from seq2sweep.stages import stage
from seq2sweep.storage import atomic


def work(config: configuration.Config) -> None:
    """Write data/raw with its provenance.json."""
    sources.check_noticed(Path(config.data.folder))
    if not entrypoint.is_inside():  # a job has none of these texts that it does not read
        if stage.self_trains(config):
            unlabelled.check(config)  # not when two parsers have been trained
        _check_alignments(config)
    fetched = None
    if config.data.registered:
        # Before data/.raw.partial exists: this may take hours, and a kill would leave it behind.
        fetched = _fetch(config)
    with atomic.whole_folder(project_files.RAW) as folder:
        if config.data.task == "parsing":
            provenance = _trees(config, folder, fetched)
        elif fetched is not None:
            provenance = _from_registry(*fetched, config)
        elif config.data.dataset == "files":
            provenance = _own_files(config.data, folder)
        else:
            provenance = _generate(config.data, folder)
        languages = {"source": config.data.source, "target": config.data.target}
        head = {"dataset": config.data.dataset, "languages": languages}
        stage.write_json(folder / "provenance.json", head | provenance)
    pairs = ", ".join(
        f"{split} {sum(corpus['lines'] for corpus in entries):,}"
        for split, entries in provenance["splits"].items()
    )
    console.say(f"{_what(config)}: {pairs}")


def _check_alignments(config: configuration.Config) -> None:
    """Raise UserError where the stage attention would, after a training."""
    file = config.attention.alignments
    if file is not None and config.attention.sentences:
        sources.check_there("attention.alignments", [file], config.data.folder)


def _what(config: configuration.Config) -> str:
    """What there is of, in words."""
    return "trees" if config.data.task == "parsing" else "sentence pairs"


# --- data sets of the registry -----------------------------------------------------------------


def _fetch(config: configuration.Config) -> tuple[sources.Dataset, dict[str, dict[str, Any]]]:
    """The data set, and size and sums of its archives, which are here now."""
    data, settings = config.data, config.download
    dataset = sources.load(Path(data.folder), data.dataset, data.source, data.target)
    console.say(
        f"{dataset.name}, about {dataset.pairs:,} training {_what(config)}: {dataset.about}\n"
        f"licence: {dataset.licence}"
    )
    folder = Path(settings.folder)
    return dataset, download.fetch(dataset.archives, folder, settings.mirrors, settings.parallel)


def _from_registry(
    dataset: sources.Dataset, sums: dict[str, dict[str, Any]], config: configuration.Config
) -> dict[str, Any]:
    folder = Path(config.download.folder)
    noted = {archive.file: receipts.texts(folder, archive) for archive in dataset.archives}
    splits: dict[str, list[dict[str, Any]]] = {}
    for split, entries in dataset.splits.items():
        for corpus in entries:
            file, member = corpus.source
            lines = corpus.lines or noted[file].get(member or "", {}).get("lines")
            entry = _read_through(corpus.name, corpus.texts(folder), folder, lines)
            splits.setdefault(split, []).append(entry)
            if lines not in (None, entry["lines"]):
                where = "the registry says" if corpus.lines else "the first time it had"
                raise UserError(
                    f"{corpus.texts(folder)[0]} has {entry['lines']:,} lines where {where} "
                    f"{lines:,}: its archive is whole, so the registry, or this program, is wrong; "
                    f"fix {config.data.folder}, or remove {file}.json beside it"
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
    return _licensed(dataset, sums) | {"splits": splits}


def _licensed(dataset: sources.Dataset, sums: dict[str, dict[str, Any]]) -> dict[str, Any]:
    archives = {
        archive.file: {key: sums[archive.file][key] for key in ("bytes", "sha256")}
        for archive in dataset.archives
    }
    return {"licence": dataset.licence, "archives": archives}


# --- one's own files ---------------------------------------------------------------------------


def _own_files(data: configuration.DataConfig, folder: Path) -> dict[str, Any]:
    """Read all files through, and write what is held out of train into `folder`."""
    named = own_files.named(data)
    chosen = hold_out.of_files(data, named) if data.files.held_out else {}
    splits: dict[str, list[dict[str, Any]]] = {}
    for split, entries in named.items():
        splits[split] = [
            _read_through(own_files.name(split, entries, number), texts, Path(data.folder))
            for number, texts in enumerate(entries)
        ]
    for split, pairs in chosen.items():
        files.write_pairs(*files.text_paths(folder, split), pairs)
        source, target = map(Text, files.text_paths(folder, split))
        splits[split] = [_read_through(files.HELD_OUT, (source, target), folder)]
    _no_text_twice({split: splits[split] for split in named}, data.folder)
    return {"archives": {}, "splits": {split: splits[split] for split in files.SPLITS}}


def _no_text_twice(splits: dict[str, list[dict[str, Any]]], folder: str) -> None:
    known: dict[str, tuple[str, tuple[str, str, bool], list[str]]] = {}
    for split, entries in splits.items():
        for entry, side in itertools.product(entries, files.SIDES):
            text = Text(Path(entry[side]["file"]), entry[side]["member"])
            name = f"{own_files.shown(text)} (data.files.{split}, {side})"
            place = split, side, text.member is not None
            pair = [entry[one]["sha256"] for one in files.SIDES]
            other, elsewhere, others = known.setdefault(entry[side]["sha256"], (name, place, pair))
            # Two shards of a table may hold the same few rows on one side; not on both.
            shards = text.member is not None and place == elsewhere and pair != others
            if other != name and not shards:
                raise UserError(
                    f"{name} holds the same text as {other}, line by line: give each side of each "
                    f"split a text of its own in {folder}"
                )


# --- the phrasebook ----------------------------------------------------------------------------


def _generate(data: configuration.DataConfig, folder: Path) -> dict[str, Any]:
    sources.check_phrasebook(data.phrasebook)
    phenomena: list[str] = []
    splits = {}
    for split in get_args(phrasebook.Split):
        paths = files.text_paths(folder, split)
        count = getattr(data.phrasebook, split)
        files.write_pairs(*paths, _pairs(split, count, data, phenomena))
        source, target = map(Text, paths)
        splits[split] = [_read_through("phrasebook", (source, target), folder, count)]
        assert splits[split][0]["lines"] == count
    files.write_lines(folder / files.PHENOMENA, phenomena)
    return {"seed": data.phrasebook.seed, "archives": {}, "splits": splits}


def _pairs(
    split: phrasebook.Split, count: int, data: configuration.DataConfig, phenomena: list[str]
) -> Iterator[tuple[str, str]]:
    for pair in _generated(split, count, data, phenomena):
        sides = {"en": pair.source, "de": pair.target}
        yield sides[data.source.lower()], sides[data.target.lower()]


def _generated(
    split: phrasebook.Split, count: int, data: configuration.DataConfig, phenomena: list[str]
) -> Iterator[phrasebook.Pair]:
    """Those of test leave their tags in `phenomena`."""
    generated = phrasebook.generate(split, count, data.phrasebook.seed)
    for pair in console.progress(generated, f"generate {split}", "pairs", count):
        if split == "test":
            phenomena.append(" ".join(pair.phenomena))
        yield pair


# --- trees -------------------------------------------------------------------------------------


def _trees(
    config: configuration.Config,
    folder: Path,
    fetched: tuple[sources.Dataset, dict[str, dict[str, Any]]] | None,
) -> dict[str, Any]:
    """Read all trees through once, from where they lie or from `folder`, where they are made."""
    data = config.data
    about: dict[str, Any] = {"archives": {}}
    if fetched is not None:
        root = Path(config.download.folder)
        found, about = corpora.of_registry(fetched[0], root), _licensed(*fetched)
    elif data.dataset == "phrasebook":
        root, about = folder, about | {"seed": data.phrasebook.seed}
        found = _generate_trees(data, folder)
    else:
        root, found = Path(data.folder), corpora.of_own(config)
    splits = {
        split: [
            corpora.describe(
                corpus,
                root,
                console.progress(corpora.read_trees(corpus.text), corpus.name, "trees"),
            )
            for corpus in entries
        ]
        for split, entries in found.items()
    }
    corpora.check_apart(splits)
    return about | {"splits": splits}


def _generate_trees(
    data: configuration.DataConfig, folder: Path
) -> dict[str, list[corpora.Corpus]]:
    sources.check_phrasebook(data.phrasebook)
    phenomena: list[str] = []
    found = {}
    for split in get_args(phrasebook.Split):
        path = folder / files.text_name(split, "trees")
        pairs = _generated(split, getattr(data.phrasebook, split), data, phenomena)
        files.write_lines(path, (pair.tree for pair in pairs))
        found[split] = [corpora.Corpus("phrasebook", Text(path))]
    files.write_lines(folder / files.PHENOMENA, phenomena)
    return found


# --- what a text is ----------------------------------------------------------------------------


def _read_through(
    name: str, texts: tuple[Text, Text], root: Path, lines: int | None = None
) -> dict[str, Any]:
    """A corpus as provenance.json describes it; UserError if its sides do not fit together.

    `lines`: how many there will be, as far as is known, for the progress bar.
    """
    sums = reading.TextSum(), reading.TextSum()
    pairs = reading.summed(reading.read_pairs(*texts), sums)
    for _ in console.progress(pairs, f"read {name}", "pairs", lines):
        pass
    described = {
        side: {
            "file": text.path.relative_to(root).as_posix(),
            "member": text.member,
            "sha256": total.sha256(),
        }
        for side, text, total in zip(files.SIDES, texts, sums, strict=True)
    }
    return {"name": name, "lines": sums[0].lines, **described}


if __name__ == "__main__":
    stage.run("download", "the raw text of train, valid and test, verified", work)
