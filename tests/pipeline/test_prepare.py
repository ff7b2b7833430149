"""Stage prepare on texts of its own: the same bytes from any processes, and hostile input."""

from __future__ import annotations

import gzip
import hashlib
import io
import itertools
import json
import random
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from pipeline import prepare
from seq2sweep import config as configuration
from seq2sweep import parallel, presets, project_files
from seq2sweep.data import files, reading
from seq2sweep.data.archives import Text
from seq2sweep.data.clean import REASONS
from seq2sweep.errors import UserError
from seq2sweep.stages import stage

ARCHIVE = "corpus.tgz"


def config_of(**changes: Any) -> configuration.Config:
    changes = {"data.dataset": "own-archives", "download.folder": "downloads", **changes}
    return configuration.with_changes(presets.load("phrasebook").config, changes)


def described(root: Path, name: str, source: tuple[str, str | None], target: Any) -> dict[str, Any]:
    """A corpus as the download stage describes it; a text is a file and perhaps a member."""
    corpus: dict[str, Any] = {"name": name}
    for side, (file, member) in (("source", source), ("target", target)):
        total = reading.TextSum()
        for line in reading.read_lines(Text(root / file, member)):
            total.add(line)
        corpus["lines"] = total.lines
        corpus[side] = {"file": file, "member": member, "sha256": total.sha256()}
    return corpus


def archive(path: Path, members: dict[str, list[str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as tar:
        for name, lines in members.items():
            content = "".join(line + "\n" for line in lines).encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))


def write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = "".join(line + "\n" for line in lines).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def training_pairs() -> dict[str, list[tuple[str, str]]]:
    """Two corpora in which pairs are dropped for every reason, many of them duplicates."""
    draw = random.Random(0)
    bad = [
        ("", "leer"),
        ("word " * 300, "Wort " * 300),
        ("word " * 50, "Wort"),
        ("this sentence was never translated at all", "this sentence was never translated at all"),
        ("Добрый день", "Guten Tag"),
        ("held out", "etwas"),
        ("something", "in\u00a0test"),
        ("two \u200b  blanks\r", "zwei\u2028Zeilen"),
    ]
    return {
        name: [
            draw.choice(bad)
            if draw.random() < 0.1
            else (f"number {draw.randrange(400)}", f"Nummer {draw.randrange(3)}")
            for _ in range(count)
        ]
        for name, count in (("first", 900), ("second", 500))
    }


@pytest.fixture
def provenance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A project folder, in which the tests run, with an archive and files in downloads."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(reading, "PAIRS_IN_CHUNK", 64)
    root = tmp_path / "downloads"
    members = {
        f"training/{name}.{language}": [pair[side] for pair in pairs]
        for name, pairs in training_pairs().items()
        for side, language in enumerate(("en", "de"))
    }
    archive(root / ARCHIVE, members)
    write(root / "dev.en", ["held  out", "a mouse"])
    write(root / "dev.de.gz", ["vorenthalten", "eine Maus"])
    for part, (english, german) in enumerate((("the end", "das Ende"), ("in", "in test")), start=1):
        write(root / f"test{part}.en", [english])
        write(root / f"test{part}.de", [german])
    found = {
        "dataset": "own-archives",
        "splits": {
            "train": [
                described(
                    root,
                    name,
                    (ARCHIVE, f"training/{name}.en"),
                    (ARCHIVE, f"training/{name}.de"),
                )
                for name in training_pairs()
            ],
            "valid": [described(root, "dev", ("dev.en", None), ("dev.de.gz", None))],
            "test": [
                described(root, f"test{part}", (f"test{part}.en", None), (f"test{part}.de", None))
                for part in (1, 2)
            ],
        },
    }
    stage.write_json(project_files.RAW / "provenance.json", found)
    return found


def outputs() -> dict[str, bytes]:
    paths = itertools.chain(
        *(Path(name).rglob("*") for name in ("data/clean", "metrics", "reports"))
    )
    return {str(path): path.read_bytes() for path in sorted(paths) if path.is_file()}


def metrics() -> Any:
    return json.loads(Path("metrics/prepare.json").read_text(encoding="utf-8"))


def pairs_of(split: str) -> list[tuple[str, str]]:
    return list(
        reading.read_pairs(*(project_files.CLEAN / files.text_name(split, s) for s in files.SIDES))
    )


def refused(provenance: dict[str, Any], **changes: Any) -> str:
    with pytest.raises(UserError) as caught:
        prepare.prepare(config_of(**changes), provenance, parallel.serial)
    assert not project_files.CLEAN.exists()
    assert not Path("metrics").exists()
    assert [path.name for path in project_files.CLEAN.parent.iterdir()] == ["raw"]
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_every_reason_is_counted_and_shown(provenance: dict[str, Any]) -> None:
    prepare.work(config_of())
    found = metrics()
    train = found["train"]
    assert list(train["dropped"]) == list(REASONS)
    assert all(count > 0 for count in train["dropped"].values())
    assert train["read"] == 1400 == train["kept"] + sum(train["dropped"].values())
    assert train["kept"] == len(pairs_of("train"))
    assert set(train["changed"]) == {"invisible", "unicode", "whitespace"}
    assert train["changed"]["whitespace"] >= train["changed"]["invisible"] > 0
    assert list(train["corpora"]) == ["first", "second"]
    for key in ("read", "kept"):
        assert sum(corpus[key] for corpus in train["corpora"].values()) == train[key]
    for reason, count in train["dropped"].items():
        parts = [corpus["dropped"][reason] for corpus in train["corpora"].values()]
        assert sum(parts) == count
        assert all(parts)
    none = {"invisible": 0, "unicode": 0, "whitespace": 0}
    assert found["valid"] == {
        "read": 2,
        "kept": 2,
        "dropped": {},
        "changed": none | {"whitespace": 1},
    }
    assert found["test"] == {"read": 2, "kept": 2, "dropped": {}, "changed": none}
    header, *rows = (
        line.split("\t")
        for line in Path("reports/dropped.tsv").read_text(encoding="utf-8").splitlines()
    )
    assert header == ["reason", "corpus", "line", "source", "target"]
    assert {row[0] for row in rows} == set(REASONS)
    raw = training_pairs()
    for _, corpus, line, source, _ in rows:
        assert " ".join(raw[corpus][int(line) - 1][0].split())[:299] == source[:299]


def test_valid_and_test_keep_size_and_order(provenance: dict[str, Any]) -> None:
    prepare.work(config_of())
    assert pairs_of("valid") == [("held out", "vorenthalten"), ("a mouse", "eine Maus")]
    assert pairs_of("test") == [("the end", "das Ende"), ("in", "in test")]
    train = pairs_of("train")
    assert len(set(train)) == len(train)
    assert not {"held out"} & {source for source, _ in train}
    assert not {"in test"} & {target for _, target in train}
    assert ("two blanks", "zwei Zeilen") in train


@pytest.mark.parametrize(("lines", "long"), [(100_000, False), (100_001, True)])
def test_long_texts_are_shared_out(
    lines: int, long: bool, provenance: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of a thousand shards is a thousand texts, each of which would start processes."""
    provenance["splits"]["train"][0]["lines"] = lines
    mapper = Mock(side_effect=KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt if long else UserError):
        prepare.prepare(config_of(), provenance, mapper)
    assert mapper.called is long
    stage.write_json(project_files.RAW / "provenance.json", provenance)
    monkeypatch.setattr(parallel, "Processes", lambda: mapper)
    with pytest.raises(KeyboardInterrupt if long else UserError):
        prepare.work(config_of())


def test_processes_and_chunks_do_not_change_a_byte(
    provenance: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare.prepare(config_of(), provenance, parallel.serial)
    expected = outputs()
    assert len(expected) == 12
    monkeypatch.setattr(prepare, "PAIRS_WORTH_PROCESSES", 0)
    prepare.prepare(config_of(), provenance, parallel.Processes(2))
    assert outputs() == expected
    monkeypatch.setattr(reading, "PAIRS_IN_CHUNK", 5_000)
    prepare.prepare(config_of(), provenance, parallel.serial)
    assert outputs() == expected
    monkeypatch.setattr(reading, "CHARACTERS_IN_CHUNK", 100)
    prepare.prepare(config_of(), provenance, parallel.serial)
    assert outputs() == expected


def test_chunks_are_bounded_by_pairs_and_by_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PAIRS_IN_CHUNK", 3)
    monkeypatch.setattr(reading, "CHARACTERS_IN_CHUNK", 10)
    pairs = [("", "")] * 4 + [("x" * 6, "y" * 6)] * 2 + [("a", "b")] * 3
    assert [len(chunk) for chunk in reading.chunks(pairs)] == [3, 2, 1, 3]
    assert list(reading.chunks([])) == []


def test_filters_that_are_switched_off_are_not_listed(provenance: dict[str, Any]) -> None:
    prepare.work(config_of(**{"prepare.drop": ["empty"], "prepare.normalise": ["whitespace"]}))
    train = metrics()["train"]
    assert list(train["dropped"]) == ["empty"]
    assert list(train["changed"]) == ["whitespace", "line"]
    assert train["kept"] == len(pairs_of("train")) == 1400 - train["dropped"]["empty"]


def test_all_switched_off_keeps_every_line(provenance: dict[str, Any]) -> None:
    prepare.work(config_of(**{"prepare.drop": [], "prepare.normalise": []}))
    raw = [pair for pairs in training_pairs().values() for pair in pairs]
    assert pairs_of("train") == [(source.rstrip("\r"), target) for source, target in raw]
    assert Path("reports/dropped.tsv").read_text() == "reason\tcorpus\tline\tsource\ttarget\n"


def altered_line(root: Path) -> None:
    write(root / "test2.de", ["in text"])


def one_line_more(root: Path) -> None:
    write(root / "test2.en", ["in", "more"])
    write(root / "test2.de", ["in test", "mehr"])


@pytest.mark.parametrize(
    ("harm", "named"), [(altered_line, "test2.de"), (one_line_more, "test2.en")]
)
def test_text_that_changed_after_the_download_is_refused(
    harm: Callable[[Path], None], named: str, provenance: dict[str, Any]
) -> None:
    harm(Path("downloads"))
    assert refused(provenance) == (
        f"downloads/{named} is not what the download stage read: "
        "run `dvc repro --force download`, which reads it again"
    )


def test_a_member_that_changed_is_named(provenance: dict[str, Any]) -> None:
    wrong = hashlib.sha256(b"other").hexdigest()
    provenance["splits"]["train"][1]["target"]["sha256"] = wrong
    message = refused(provenance)
    assert message.startswith("downloads/corpus.tgz (training/second.de) is not what")


def test_an_empty_held_out_sentence_is_named(provenance: dict[str, Any]) -> None:
    write(Path("downloads/dev.de.gz"), ["vorenthalten", "\u200b "])
    described_again = described(Path("downloads"), "dev", ("dev.en", None), ("dev.de.gz", None))
    provenance["splits"]["valid"] = [described_again]
    assert "downloads/dev.de.gz: sentence 2 is empty: valid sentences" in refused(provenance)


def test_no_pair_left_says_why(provenance: dict[str, Any]) -> None:
    message = refused(provenance, **{"prepare.max_words": 1, "prepare.normalise": ["whitespace"]})
    assert message.startswith("none of 1,400 training pairs is left (empty ")


@pytest.mark.parametrize(
    ("dataset", "folder"), [("phrasebook", "data/raw"), ("files", "own"), ("wmt", "downloads")]
)
def test_where_the_text_is_depends_on_the_dataset(dataset: str, folder: str) -> None:
    own = {"data.dataset": dataset, "data.folder": "own"}
    if dataset == "files":
        own |= {f"data.files.{split}": [f"{split}.en", f"{split}.de"] for split in files.SPLITS}
    assert prepare._root(config_of(**own), "train") == Path(folder)
    held_out = "data/raw" if dataset == "files" else folder
    assert prepare._root(config_of(**own), files.HELD_OUT) == Path(held_out)


def test_phenomena_are_copied_and_counted(provenance: dict[str, Any]) -> None:
    write(project_files.RAW / files.PHENOMENA, ["plural", "question"])
    prepare.work(config_of())
    assert (project_files.CLEAN / files.PHENOMENA).read_bytes() == b"plural\nquestion\n"
    write(project_files.RAW / files.PHENOMENA, ["plural"])
    with pytest.raises(UserError, match=r"phenomena\.txt has 1 lines but the test set 2 sentences"):
        prepare.work(config_of())


def test_pairs_that_were_held_out_are_so_in_any_case(provenance: dict[str, Any]) -> None:
    """By hand, a sentence of validation lies in the training text in another case."""
    root = Path("downloads")
    write(root / "train.en", ["HELD out", "a cat"])
    write(root / "train.de", ["neu", "eine Katze"])
    train = described(root, "mine", ("train.en", None), ("train.de", None))
    splits = provenance["splits"] | {"train": [train]}
    counts = []
    for held_out in (0, 2):
        changes: dict[str, Any] = {"data.dataset": "files", "data.folder": "downloads"}
        changes["data.files.train"] = ["train.en", "train.de"]
        for split in ("valid", "test"):
            own = {f"data.files.{split}_pairs": held_out}
            changes |= own if held_out else {f"data.files.{split}": ["dev.en", "dev.de.gz"]}
        if not held_out:
            changes["data.files.test"] = ["test1.en", "test1.de"]
        prepare.prepare(config_of(**changes), {"splits": splits}, parallel.serial)
        metrics = json.loads(Path("metrics/prepare.json").read_text())
        counts.append(metrics["train"]["dropped"]["contamination"])
    assert counts == [0, 1]
