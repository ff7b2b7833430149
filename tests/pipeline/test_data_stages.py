"""The four data stages: from text to token ids, and hostile input refused."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline import download
from seq2sweep import config as configuration
from seq2sweep import presets
from seq2sweep.data.bitext import Bitext
from seq2sweep.data.files import SIDES, SPLITS
from seq2sweep.data.vocabulary import Vocabulary
from seq2sweep.errors import UserError
from seq2sweep.planning.data import known_pairs
from tests.clone import ROOT
from tests.pipeline.stage_runs import Run, command, environment, run, run_alone, succeed

MULTI30K = ROOT.parent / "shared/data/multi30k"
STAGES = ("download", "prepare", "vocabulary", "encode")
SMALL = {
    "data.phrasebook.train": 300,
    "data.phrasebook.valid": 20,
    "data.phrasebook.test": 30,
    "vocabulary.size": 300,
}
FILES = {
    "data.dataset": "files",
    "data.folder": "own",
    "data.files.train": ["train.en", "train.de.gz"],
    "data.files.valid": ["valid.en", "valid.de"],
    "data.files.test": ["test.en", "deep/test.de"],
    "prepare.max_words": 12,
    "vocabulary.size": 60,
}
TEXT = {
    "train.en": b"The dog\r\nThe\xc2\xa0cat\xe2\x80\xa8sleeps\nThe dog\n\nheld out\nThe hedgehog\n",
    "train.de.gz": "Der Hund\nDie Katze schläft\nDer Hund\nleer\nneu\nDer Igel".encode(),
    "valid.en": b"\xef\xbb\xbfheld  out\na mouse\n",
    "valid.de": b"vorenthalten\neine Maus\n",
    "test.en": b"the end\nheld out\n",
    "deep/test.de": b"das Ende\nvorenthalten\n",
}


def refuse(stage: str, folder: Path, how: Run = run) -> str:
    """The one line on standard error of a stage that must exit with status 2."""
    done = how(stage, folder)
    assert done.returncode == 2, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith(f"seq2sweep {stage}: ")
    return lines[0]


def set_params(folder: Path, changes: dict[str, Any]) -> None:
    config = configuration.with_changes(presets.load("phrasebook").config, changes)
    (folder / "params.yaml").write_text(configuration.dump(config), encoding="utf-8")


def put(folder: Path, name: str, content: bytes) -> None:
    path = folder / "own" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content, mtime=0) if name.endswith(".gz") else content)


def own_files(folder: Path, **changes: Any) -> Path:
    """A project whose data are the files of TEXT."""
    for name, content in TEXT.items():
        put(folder, name, content)
    set_params(folder, FILES | changes)
    return folder


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def sums(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for part in ("data", "metrics")
        for path in sorted((folder / part).rglob("*"))
        if path.is_file()
    }


def text_of(folder: Path, name: str) -> list[str]:
    return (folder / "data" / name).read_bytes().decode().removesuffix("\n").split("\n")


# --- the way through ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project on the phrasebook after all four stages, each in a process of its own."""
    folder = tmp_path_factory.mktemp("phrasebook")
    set_params(folder, SMALL)
    for stage in STAGES:
        output = succeed(stage, folder, run_alone)
        assert f"== {stage} · " in output
    return folder


def test_phrasebook_gives_what_params_ask_for(walked: Path) -> None:
    provenance = read(walked / "data/raw/provenance.json")
    counts = {"train": 300, "valid": 20, "test": 30}
    assert provenance["dataset"] == "phrasebook"
    assert provenance["seed"] == presets.load("phrasebook").config.data.phrasebook.seed
    assert provenance["languages"] == {"source": "en", "target": "de"}
    for split, count in counts.items():
        (corpus,) = provenance["splits"][split]
        assert (corpus["name"], corpus["lines"]) == ("phrasebook", count)
        for side in SIDES:
            name = f"{split}.{side}.txt"
            assert len(text_of(walked, f"raw/{name}")) == count
            found = hashlib.sha256((walked / "data/raw" / name).read_bytes()).hexdigest()
            assert corpus[side] == {"file": name, "member": None, "sha256": found}


def test_phenomena_stay_beside_their_sentences(walked: Path) -> None:
    phenomena = text_of(walked, "clean/test.phenomena.txt")
    assert phenomena == text_of(walked, "raw/test.phenomena.txt")
    assert len(phenomena) == len(text_of(walked, "clean/test.source.txt")) == 30


def test_counts_of_prepare_add_up(walked: Path) -> None:
    metrics = read(walked / "metrics/prepare.json")
    assert list(metrics) == ["train", "valid", "test"]
    train = metrics["train"]
    assert train["read"] == 300 == train["kept"] + sum(train["dropped"].values())
    assert train["kept"] == len(text_of(walked, "clean/train.target.txt"))
    assert (metrics["valid"]["kept"], metrics["test"]["kept"]) == (20, 30)


def test_encoded_text_is_the_clean_text(walked: Path) -> None:
    pieces = Vocabulary.open(walked / "data/vocabulary")
    described = read(walked / "data/vocabulary/vocabulary.json")
    assert len(pieces) == described["size"] == 300
    assert pieces.fingerprint == described["sha256"]
    assert described["languages"] == {"source": "en", "target": "de"}
    for split in SPLITS:
        text = Bitext.open(walked / "data/encoded", split)
        assert text.header["vocabulary"]["fingerprint"] == pieces.fingerprint
        for side, sentence in (("source", text.source), ("target", text.target)):
            ids = [sentence(i).tolist() for i in range(len(text))]
            assert ids == pieces.encode(text_of(walked, f"clean/{split}.{side}.txt"))
    train = Bitext.open(walked / "data/encoded", "train")
    lines = text_of(walked, "clean/train.target.txt")
    assert pieces.decode([train.target(i).tolist() for i in range(len(train))]) == lines


def test_two_runs_give_the_same_bytes(walked: Path, tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_bytes((walked / "params.yaml").read_bytes())
    for stage in STAGES:
        succeed(stage, tmp_path)
    assert sums(tmp_path) == sums(walked)


@pytest.mark.parametrize(
    ("stage", "file"),
    [
        ("vocabulary", "data/clean/train.source.txt"),
        ("vocabulary", "data/clean/train.target.txt"),
        ("encode", "data/clean/valid.target.txt"),
        ("encode", "data/clean/test.source.txt"),
        ("train", "data/encoded/valid.source.lengths"),
        ("sweep", "data/encoded/valid.target.tokens"),
    ],
)
def test_a_stage_notices_a_byte_that_changed_in_what_it_reads(
    walked: Path, tmp_path: Path, stage: str, file: str
) -> None:
    """Called directly, so that DVC has not seen it first."""
    project = tmp_path / "project"
    shutil.copytree(walked, project)
    content = bytearray((project / file).read_bytes())
    content[len(content) // 2] ^= 1
    (project / file).write_bytes(content)
    header = f"{Path(file).parent}/{Path(file).name.split('.')[0]}.json"
    assert f"{file} has changed since it was written (its sha256 is not that in {header}): run" in (
        refuse(stage, project)
    )


def test_another_seed_gives_other_text(walked: Path, tmp_path: Path) -> None:
    set_params(tmp_path, {**SMALL, "data.phrasebook.seed": 77})
    succeed("download", tmp_path)
    name = "raw/train.source.txt"
    assert text_of(tmp_path, name) != text_of(walked, name)


def test_stages_find_what_they_need_missing(tmp_path: Path) -> None:
    assert "params.yaml is missing" in refuse("download", tmp_path, run_alone)
    set_params(tmp_path, SMALL)
    for stage, missing in (
        ("prepare", "data/raw/provenance.json is missing: run `dvc repro`"),
        ("vocabulary", "data/clean/train.json is missing"),
        ("encode", "data/vocabulary/vocabulary.model is missing: run `dvc repro`"),
    ):
        assert missing in refuse(stage, tmp_path)
    assert not (tmp_path / "data").exists() or list((tmp_path / "data").iterdir()) == []


def test_alignments_that_are_not_there_are_told_before_a_training(tmp_path: Path) -> None:
    settings = SMALL | {"data.folder": "own", "attention.alignments": "gold.align"}
    set_params(tmp_path, settings)
    missing = "own/gold.align is missing: check data.folder and attention.alignments"
    assert missing in refuse("download", tmp_path)
    set_params(tmp_path, settings | {"attention.alignments": "../gold.align"})
    assert "which is outside" in refuse("download", tmp_path)
    (tmp_path / "own").mkdir()
    (tmp_path / "own/gold.align").touch()
    set_params(tmp_path, settings)
    succeed("download", tmp_path)


# --- a dataset of one's own --------------------------------------------------------------------


def test_own_files_are_read_and_cleaned(tmp_path: Path) -> None:
    own_files(tmp_path)
    succeed("download", tmp_path)
    assert [path.name for path in (tmp_path / "data/raw").iterdir()] == ["provenance.json"]
    splits = read(tmp_path / "data/raw/provenance.json")["splits"]
    described = [splits[split][0][side] for split in SPLITS for side in SIDES]
    for (name, content), found in zip(TEXT.items(), described, strict=True):
        # Of the lines: without a byte order mark, each ended by one "\n".
        lines = content.decode("utf-8-sig").replace("\r\n", "\n").removesuffix("\n") + "\n"
        digest = hashlib.sha256(lines.encode()).hexdigest()
        assert found == {"file": name, "member": None, "sha256": digest}
    assert [splits[split][0]["lines"] for split in SPLITS] == [6, 2, 2]
    assert str(tmp_path) not in (tmp_path / "data/raw/provenance.json").read_text()
    said = succeed("prepare", tmp_path)
    assert "empty 1" in said
    assert "duplicate 1" in said
    assert "contamination 1" in said
    assert text_of(tmp_path, "clean/train.source.txt") == [
        "The dog",
        "The cat sleeps",
        "The hedgehog",
    ]
    assert text_of(tmp_path, "clean/valid.source.txt") == ["held out", "a mouse"]
    metrics = read(tmp_path / "metrics/prepare.json")
    dropped = {reason: n for reason, n in metrics["train"]["dropped"].items() if n}
    assert dropped == {"empty": 1, "contamination": 1, "duplicate": 1}
    assert (metrics["train"]["read"], metrics["train"]["kept"]) == (6, 3)
    for split in ("valid", "test"):
        assert (metrics[split]["read"], metrics[split]["kept"]) == (2, 2)
        assert metrics[split]["dropped"] == {}
    assert not (tmp_path / "data/clean/test.phenomena.txt").exists()


def test_the_plan_counts_what_prepare_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plain and packed, with the ends of lines that only some programs see."""
    own_files(tmp_path, **{"data.files.valid": ["valid.en", "valid.de.gz"]})
    put(tmp_path, "valid.en", b"one\r\ntwo\xe2\x80\xa8two\nthree")
    put(tmp_path, "valid.de.gz", b"eins\x0ceins\nzwei\ndrei\r\n")
    for stage in ("download", "prepare"):
        succeed(stage, tmp_path)
    metrics = read(tmp_path / "metrics/prepare.json")
    monkeypatch.chdir(tmp_path)
    config = configuration.load(Path("params.yaml"))
    counted = {split: metrics[split]["read"] for split in SPLITS}
    assert counted == {"train": 6, "valid": 3, "test": 2}
    assert known_pairs(config) == known_pairs(config, Path("data/raw")) == counted


HELD_OUT = {
    "data.files.valid": [],
    "data.files.test": [],
    "data.files.valid_pairs": 5,
    "data.files.test_pairs": 7,
}


def repeating(count: int) -> list[tuple[str, str]]:
    """Pairs of which some repeat one another, a sentence of it, or it in capitals."""
    pairs = [(f"Satz {'abcdefghij'[n % 10] * (n + 1)}", f"s {n}") for n in range(count)]
    others = [(pairs[n][0], f"neu {n}") for n in range(0, count, 3)]
    return pairs + pairs[::2] + others + [(s.upper(), t) for s, t in pairs[::9]]


def text_files(folder: Path, pairs: list[tuple[str, str]]) -> None:
    for side, name in enumerate(("train.en", "train.de.gz")):
        put(folder, name, "".join(f"{pair[side]}\n" for pair in pairs).encode())


@pytest.mark.parametrize("lowercase", [False, True])
def test_no_held_out_sentence_is_on_two_sides(tmp_path: Path, lowercase: bool) -> None:
    pairs = repeating(60)
    text_files(tmp_path, pairs)
    set_params(tmp_path, FILES | HELD_OUT | {"prepare.lowercase": lowercase})
    assert "train 117, valid 5, test 7" in succeed("download", tmp_path)
    assert sorted(path.name for path in (tmp_path / "data/raw").iterdir()) == [
        "provenance.json",
        *(f"{split}.{side}.txt" for split in ("test", "valid") for side in SIDES),
    ]
    succeed("prepare", tmp_path)
    texts = {
        (split, side): text_of(tmp_path, f"clean/{split}.{side}.txt")
        for split in SPLITS
        for side in SIDES
    }
    for side in SIDES:
        sets = {split: {text.lower() for text in texts[split, side]} for split in SPLITS}
        assert [len(sets[split]) for split in ("valid", "test")] == [5, 7]
        for one, other in (("train", "valid"), ("train", "test"), ("valid", "test")):
            assert not sets[one] & sets[other]
    known = {pair if not lowercase else tuple(text.lower() for text in pair) for pair in pairs}
    for split in SPLITS:
        assert set(zip(*(texts[split, side] for side in SIDES), strict=True)) <= known
    metrics = read(tmp_path / "metrics/prepare.json")
    assert [metrics[split]["kept"] for split in ("valid", "test")] == [5, 7]
    assert metrics["train"]["dropped"]["contamination"] >= 12
    path = tmp_path / "data/raw/valid.target.txt"
    path.write_bytes(path.read_bytes().replace(b"s", b"t", 1))
    assert "valid.target.txt is not what the download stage read" in refuse("prepare", tmp_path)


def test_another_size_of_validation_leaves_the_test_set_alone(tmp_path: Path) -> None:
    text_files(tmp_path, repeating(60))
    found = []
    for pairs in (5, 6):
        set_params(tmp_path, FILES | HELD_OUT | {"data.files.valid_pairs": pairs})
        succeed("download", tmp_path)
        found.append([text_of(tmp_path, f"raw/{s}.source.txt") for s in ("valid", "test")])
    (first_valid, first_test), (valid, test) = found
    assert test == first_test
    assert set(first_valid) < set(valid)


def test_tables_are_read_as_texts_are(tmp_path: Path) -> None:
    """Two shards of Parquet with a struct, and what is held out of them."""
    pairs = repeating(60)
    names = ["t-*.parquet:translation.en", "t-*.parquet:translation.de"]
    (tmp_path / "own").mkdir()
    for number, part in enumerate((pairs[:40], pairs[40:])):
        rows = [{"en": source, "de": target} for source, target in part]
        pq.write_table(pa.table({"translation": rows}), tmp_path / f"own/t-{number}.parquet")
    set_params(tmp_path, FILES | HELD_OUT | {"data.files.train": names})
    assert "train 117, valid 5, test 7" in succeed("download", tmp_path)
    splits = read(tmp_path / "data/raw/provenance.json")["splits"]
    about = [(entry["name"], entry["lines"], entry["target"]["file"]) for entry in splits["train"]]
    assert about == [("train 1", 40, "t-0.parquet"), ("train 2", 77, "t-1.parquet")]
    assert splits["train"][0]["source"]["member"] == "translation.en"
    succeed("prepare", tmp_path)
    clean = sums(tmp_path)
    text_files(tmp_path, pairs)
    set_params(tmp_path, FILES | HELD_OUT)
    for stage in ("download", "prepare"):
        succeed(stage, tmp_path)
    again = sums(tmp_path)
    files = [name for name in clean if name.startswith("data/clean/")]
    assert len(files) == 9
    assert [again[name] for name in files] == [clean[name] for name in files]


def test_lowercase_reaches_every_split(tmp_path: Path) -> None:
    own_files(tmp_path, **{"prepare.lowercase": True})
    succeed("download", tmp_path)
    succeed("prepare", tmp_path)
    for split in SPLITS:
        for side in SIDES:
            text = "\n".join(text_of(tmp_path, f"clean/{split}.{side}.txt"))
            assert text == text.lower()


def test_a_folder_may_be_absolute(tmp_path: Path) -> None:
    own_files(tmp_path, **{"data.folder": str(tmp_path / "own")})
    succeed("download", tmp_path)
    assert str(tmp_path) not in (tmp_path / "data/raw/provenance.json").read_text()


def replaced(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda folder: put(folder, name, content)


def truncated(folder: Path) -> None:
    path = folder / "own/train.de.gz"
    path.write_bytes(path.read_bytes()[:-12])


def not_gzip(folder: Path) -> None:
    (folder / "own/train.de.gz").write_bytes(TEXT["train.de.gz"])


@pytest.mark.parametrize(
    ("harm", "expected"),
    [
        (replaced("valid.de", b"only one\n"), ["valid.en has 2 lines", "valid.de has 1 lines"]),
        (replaced("train.en", b"one\n"), ["train.en has 1 lines", "train.de.gz has 6 lines"]),
        (replaced("train.en", b"gut\nsch\xf6n\n"), ["own/train.en line 2", "byte 4", "0xf6"]),
        (replaced("test.en", b""), ["own/test.en is empty"]),
        (lambda folder: (folder / "own/valid.en").unlink(), ["own/valid.en is missing"]),
        (not_gzip, ["train.de.gz", "not valid gzip"]),
        (truncated, ["train.de.gz", "truncated"]),
    ],
)
def test_hostile_files_are_refused(
    harm: Callable[[Path], None], expected: list[str], tmp_path: Path
) -> None:
    harm(own_files(tmp_path))
    message = refuse("download", tmp_path)
    assert all(part in message for part in expected), message
    assert list((tmp_path / "data").iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"data.folder": "nowhere"}, "data.folder is nowhere, which is not a folder"),
        ({"data.folder": "params.yaml"}, "data.folder is params.yaml, which is not a folder"),
        ({"data.files.train": ["../x", "train.de.gz"]}, "../x, which is outside of data.folder"),
        ({"data.files.train": ["train.en", "deep/../../x"]}, "outside of data.folder"),
        ({"data.files.train": ["..:en", "..:de"]}, "names ..:en, which is outside of data.folder"),
        ({"data.files.test": ["/etc/hosts", "x"]}, "/etc/hosts, which is outside of data.folder"),
        ({"data.files.test": ["deep", "x"]}, "own/deep cannot be read"),
    ],
)
def test_hostile_names_are_refused(changes: dict[str, Any], expected: str, tmp_path: Path) -> None:
    own_files(tmp_path, **changes)
    assert expected in refuse("download", tmp_path)


@pytest.mark.parametrize(
    ("copy", "of", "named"),
    [
        (
            "train.de.gz",
            "train.en",
            "train.de.gz (data.files.train, target) holds the same text as train.en (data.files."
            "train, source)",
        ),
        (
            "deep/test.de",
            "valid.de",
            "deep/test.de (data.files.test, target) holds the same text as valid.de (data.files."
            "valid, target)",
        ),
    ],
)
def test_a_copy_under_another_name_is_refused(
    tmp_path: Path, copy: str, of: str, named: str
) -> None:
    """As the same name is: a model that copies would have the best BLEU of all."""
    own_files(tmp_path)
    put(tmp_path, copy, TEXT[of])
    assert named in refuse("download", tmp_path)
    assert list((tmp_path / "data").iterdir()) == []


def test_shards_of_one_side_may_hold_the_same_rows() -> None:
    """Tables that were written in many parts have some of one row."""

    def entry(file: str, target: str, member: str | None = "de") -> dict[str, Any]:
        return {
            "source": named(file, f"s{file}", member),
            "target": named(file, target, member),
        }

    def named(file: str, digest: str, member: str | None = "de") -> dict[str, Any]:
        return {"file": file, "member": member, "sha256": digest}

    same = [entry("1.parquet", "yes"), entry("2.parquet", "yes")]
    download._no_text_twice({"train": same}, "own")
    for splits in (
        {"train": same[:1], "test": same[1:]},
        {"train": [entry("1.en", "yes", None), entry("2.en", "yes", None)]},
        {"train": [same[0], entry("2.parquet", "s1.parquet")]},
        {"train": [same[0], entry("1.parquet", "yes") | {"target": named("copy.parquet", "yes")}]},
    ):
        with pytest.raises(UserError, match="holds the same text as"):
            download._no_text_twice(splits, "own")


def test_a_name_may_leave_a_folder_of_its_own(tmp_path: Path) -> None:
    own_files(tmp_path, **{"data.files.test": ["deep/../test.en", "deep/test.de"]})
    succeed("download", tmp_path)


def test_an_empty_test_sentence_is_named_by_the_users_file(tmp_path: Path) -> None:
    own_files(tmp_path)
    put(tmp_path, "deep/test.de", "das Ende\n\u200b \n".encode())
    succeed("download", tmp_path)
    assert "deep/test.de: sentence 2 is empty" in refuse("prepare", tmp_path)
    assert not (tmp_path / "data/clean").exists()


def test_no_training_pair_left_says_why(tmp_path: Path) -> None:
    own_files(tmp_path, **{"prepare.max_words": 1})
    succeed("download", tmp_path)
    message = refuse("prepare", tmp_path)
    assert "none of 6 training pairs is left (empty 1, too_long 5, " in message
    assert not (tmp_path / "data/clean").exists()


def test_a_vocabulary_too_large_for_the_text_is_refused(tmp_path: Path) -> None:
    own_files(tmp_path, **{"vocabulary.size": 8000})
    for stage in ("download", "prepare"):
        succeed(stage, tmp_path)
    # Alone, as what sentencepiece itself says of it is not Python's to show.
    said = refuse("vocabulary", tmp_path, run_alone)
    assert "vocabulary.size is 8000 but this text supports at most" in said
    assert not (tmp_path / "data/vocabulary").exists()


def test_a_vocabulary_of_other_text_marks_what_it_does_not_know(tmp_path: Path) -> None:
    own_files(tmp_path)
    put(tmp_path, "deep/test.de", "das Ende 漢\nvorenthalten\n".encode())
    for stage in STAGES:
        succeed(stage, tmp_path)
    assert read(tmp_path / "data/encoded/test.json")["target"]["unknown_share"] > 0
    assert read(tmp_path / "data/encoded/train.json")["target"]["unknown_share"] == 0


def test_a_killed_download_leaves_no_folder_and_the_next_run_mends(tmp_path: Path) -> None:
    own_files(tmp_path)
    set_params(tmp_path, SMALL | {"data.phrasebook.train": 10**7})  # takes minutes
    process = subprocess.Popen(
        command("download"), cwd=tmp_path, env=environment(), stdout=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "data/.raw.partial").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "data/raw").exists()
    set_params(tmp_path, FILES)
    succeed("download", tmp_path)
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["raw"]


def test_the_phrasebook_has_both_directions(tmp_path: Path) -> None:
    texts = []
    for source, target in (("en", "de"), ("de", "en")):
        folder = tmp_path / source
        folder.mkdir()
        set_params(folder, SMALL | {"data.source": source, "data.target": target})
        succeed("download", folder)
        raw = folder / "data/raw"
        texts.append([(raw / f"test.{side}.txt").read_text(encoding="utf-8") for side in SIDES])
        languages = {"source": source, "target": target}
        assert read(raw / "provenance.json")["languages"] == languages
    assert texts[0] == texts[1][::-1]
    assert texts[0][0] != texts[0][1]


def test_more_sentences_than_the_phrasebook_holds_are_refused(tmp_path: Path) -> None:
    set_params(tmp_path, {**SMALL, "data.phrasebook.valid": 10**12})
    message = refuse("download", tmp_path)
    assert "data.phrasebook.valid is 1000000000000 but the phrasebook holds at most" in message


# --- a real corpus -----------------------------------------------------------------------------


@pytest.mark.skipif(not MULTI30K.is_dir(), reason="Multi30k is not here")
def test_multi30k(tmp_path: Path) -> None:
    set_params(
        tmp_path,
        {
            "data.dataset": "files",
            "data.folder": str(MULTI30K),
            "data.files.train": ["train.en.gz", "train.de.gz"],
            "data.files.valid": ["val.en.gz", "val.de.gz"],
            "data.files.test": ["test_2016_flickr.en.gz", "test_2016_flickr.de.gz"],
            "vocabulary.size": 8000,
        },
    )
    for stage in STAGES:
        succeed(stage, tmp_path)
    metrics = read(tmp_path / "metrics/prepare.json")
    dropped = {reason: n for reason, n in metrics["train"]["dropped"].items() if n}
    assert dropped == {"duplicate": 3, "contamination": 2}
    assert (metrics["train"]["read"], metrics["train"]["kept"]) == (29_000, 28_995)
    assert (metrics["valid"]["kept"], metrics["test"]["kept"]) == (1014, 1000)
    assert read(tmp_path / "data/encoded/train.json")["sentences"] == 28_995
    assert read(tmp_path / "data/encoded/test.json")["target"]["unknown_share"] < 0.001
