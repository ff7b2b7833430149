"""`seq2sweep init`: counts, splits, sizes with reasons, and params.yaml that plan understands."""

from __future__ import annotations

import gzip
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seq2sweep import config as configuration
from seq2sweep import presets
from seq2sweep.cli import main
from seq2sweep.data.own import hold_out
from seq2sweep.data.own.discovery import find
from seq2sweep.data.own.hold_out import Sentences
from seq2sweep.errors import UserError
from seq2sweep.planning import proposal
from seq2sweep.planning.data import known_pairs
from seq2sweep.planning.plan import plan
from tests.refusal import refusal

Pairs = list[tuple[str, str]]


@pytest.fixture(autouse=True)
def _project(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposal, "available_cpus", lambda: 2)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)


def words(number: int) -> str:
    return " ".join("abcdefghij"[int(digit)] * 3 for digit in str(number + 1000))


def pairs(count: int, start: int = 0) -> Pairs:
    return [(f"Src {words(n)}.", f"Tgt {words(n)}.") for n in range(start, start + count)]


def write(stem: str, some: Pairs, folder: str = "corpora/mine") -> None:
    Path(folder).mkdir(parents=True, exist_ok=True)
    for side, code in enumerate(("en", "de")):
        text = "".join(f"{pair[side]}\n" for pair in some)
        Path(folder, f"{stem}.{code}").write_text(text, encoding="utf-8")


MINE = ("corpora/mine", "--from", "en", "--to", "de")


def init() -> int:
    return main(["init", *MINE, "--force"])


def test_pairs_with_repeated_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    some = pairs(400)
    some += some[:50] + [(some[n][0], f"Another {n}.") for n in range(100, 130)] + [("", "leer")]
    random.Random(1).shuffle(some)
    write("train", some)
    assert init() == 0
    out = capsys.readouterr().out
    assert "train.en and train.de: 481 pairs, 480 of them clean, 50 of those repeated" in out
    assert out.startswith("corpora/mine, en to de\n")
    assert "20 pairs held out of train" in out
    config = configuration.load(Path("params.yaml"))
    assert (config.data.dataset, config.data.folder) == ("files", "corpora/mine")
    assert config.data.files.train == ("train.en", "train.de")
    assert config.data.files.held_out == {"valid": 20, "test": 20}
    # What is left is what prepare keeps: different pairs without a sentence of the others.
    places = hold_out.held_out(hold_out.sentences(some, "en", "de"), 20, 20)
    out_of = [some[place] for found in places.values() for place in found]
    sides = [{pair[side] for pair in out_of} for side in (0, 1)]
    left = {p for p in some if p[0] and p[0] not in sides[0] and p[1] not in sides[1]}
    assert f"and {len(left):,} different ones are left" in out
    lost = sum(p[0] in sides[0] or p[1] in sides[1] for p in some) - 40
    also = [
        int(line.split(" and ")[1].split()[0]) for line in out.splitlines() if "left out" in line
    ]
    assert sum(also) == lost > 0


@pytest.mark.parametrize(
    ("stem", "folder", "also", "named"),
    [
        ("train", "corpora/caf\udce9", "x", "corpora/caf\udce9"),
        ("caf\udce9", "corpora/mine", "x", "corpora/mine/caf\udce9.de"),
        ("train", "corpora/mine", "deep/caf\udce9", "corpora/mine/deep/caf\udce9"),
    ],
)
def test_a_name_that_params_or_dvc_cannot_hold_is_refused(
    stem: str, folder: str, also: str, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(stem, pairs(40), folder)
    Path(folder, also).parent.mkdir(exist_ok=True)
    Path(folder, also).touch()
    before = Path("params.yaml").read_bytes()
    assert main(["init", folder, "--from", "en", "--to", "de", "--force"]) == 2
    problem = "has a name that is not UTF-8: rename it in UTF-8"
    shown = named.encode("ascii", "backslashreplace").decode()
    assert capsys.readouterr().err == f"seq2sweep init: {shown} {problem}\n"
    assert Path("params.yaml").read_bytes() == before


def test_shards_that_are_not_there_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    Path("corpora/mine").mkdir(parents=True)
    rows = dict(zip(("en", "de"), map(list, zip(*pairs(60), strict=True)), strict=True))
    pq.write_table(pa.table(rows), "corpora/mine/train-0-of-3.parquet")
    assert init() == 0
    out = capsys.readouterr().out
    assert "train-1-of-3.parquet and 1 more, which the other names count, are not there" in out
    rows = {"en": ["A."], "de": ["B."]}
    pq.write_table(pa.table(rows), "corpora/mine/train-1-of-3.parquet")
    assert init() == 0
    out = capsys.readouterr().out
    assert "train-2-of-3.parquet, which the other names count, is not there" in out


def test_plan_knows_the_counts_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    write("train", pairs(600))
    assert init() == 0
    assert "  time   about " in capsys.readouterr().out
    config = configuration.load(Path("params.yaml"))
    assert known_pairs(config) == {"train": 540, "valid": 30, "test": 30}
    planned = plan(Path())
    assert (planned["data"]["pairs"], planned["data"]["counted"]) == (540, True)
    assert planned["total"]["seconds"] > 0
    assert main(["plan"]) == 0
    assert "540 training pairs" in capsys.readouterr().out


def test_files_of_splits_are_used_and_their_leaks_told(capsys: pytest.CaptureFixture[str]) -> None:
    train, valid, test = pairs(300), pairs(30, 1000), pairs(40, 2000)
    valid[:3] = [train[7], (train[8][0], "Anders."), (test[5][0], "Noch anders.")]
    write("train", [*train, train[7]])
    write("dev", valid)
    write("test", test)
    assert init() == 0
    out = capsys.readouterr().out
    assert "2 of them with a sentence that train has: training leaves out its 3 with one" in out
    assert "1 pairs of valid have a sentence that test has: remove them from valid, or set" in out
    assert out.count("with a sentence") == 1
    files = configuration.load(Path("params.yaml")).data.files
    assert (files.valid, files.test) == (("dev.en", "dev.de"), ("test.en", "test.de"))
    assert files.held_out == {}
    assert "and 298 different ones are left" in out


@pytest.mark.parametrize(("given_valid", "left"), [(False, 284), (True, 300)])
def test_case_counts_where_no_split_is_held_out_of_train(
    given_valid: bool, left: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """As it does for `prepare`, whose counts these are."""
    test = pairs(30, 1000)
    shouted = [(source.upper(), f"Noch {n}.") for n, (source, _) in enumerate(test[:1])]
    alike = [(test[1][0], "Anders.")]
    write("train", [*pairs(299), *shouted, *alike])
    write("test", test)
    if given_valid:
        write("dev", pairs(15, 3000))
    assert init() == 0
    out = capsys.readouterr().out
    leaks = 1 if given_valid else 2
    assert (
        f"{leaks} of them with a sentence that train has: training leaves out its {leaks} with one"
    ) in out
    # Of 301 pairs, without these, nor the 15 that are held out for validation.
    assert f"and {left} different ones are left" in out


def test_nothing_is_left_where_train_is_the_test_set_in_another_case(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`prepare` would find that only when all has been downloaded."""
    some = pairs(300)
    write("train", some)
    write("test", [(source.upper(), target.upper()) for source, target in some[15:]])
    line = refused(capsys, *MINE)
    assert "each pair of train has a sentence of valid or test" in line


def test_nothing_to_train_on_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Somebody has copied the training text, to try it."""
    for stem in ("train", "dev"):
        write(stem, pairs(300))
    write("test", pairs(30, start=300))
    line = refused(capsys, *MINE)
    assert "each pair of train has a sentence of valid or test" in line


def test_what_is_missing_of_the_splits_is_held_out(capsys: pytest.CaptureFixture[str]) -> None:
    write("train", pairs(300))
    write("test", [*pairs(30, 1000), *pairs(2)])
    assert init() == 0
    assert "valid  15 pairs held out of train" in capsys.readouterr().out
    config = configuration.load(Path("params.yaml"))
    assert config.data.files.held_out == {"valid": 15}
    assert known_pairs(config) == {"train": 285, "valid": 15, "test": 32}


def test_fewer_are_held_out_where_so_many_cannot_be(capsys: pytest.CaptureFixture[str]) -> None:
    """All but 12 sentences are there in other upper and lower case."""
    some = pairs(400)
    write("train", some + [(source.lower(), target.lower()) for source, target in some[12:]])
    assert init() == 0
    out = capsys.readouterr().out
    assert "test   5 pairs held out of train (39 cannot be)\n" in out
    config = configuration.load(Path("params.yaml"))
    assert config.data.files.held_out == {"valid": 5, "test": 5}
    assert known_pairs(config) == {"train": 778, "valid": 5, "test": 5}


def test_where_nothing_can_be_held_out_files_are_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    some = pairs(400)
    write("news", some + [(source.lower(), target.lower()) for source, target in some])
    line = refused(capsys, *MINE)
    assert "too few of 800 pairs of news.en and news.de can be held out" in line
    assert "put valid.en and valid.de and test.en and test.de beside them" in line
    assert "data.files" not in line
    write("valid", pairs(30, 1000))
    assert ": put test.en and test.de beside them (test.parquet" in refused(capsys, *MINE)
    write("test", pairs(30, 2000))
    assert init() == 0


def reasons(
    count: int, characters: float = 43.0, different: int = 90
) -> tuple[dict[str, Any], list[str]]:
    nothing = np.empty(0, np.uint64)
    train = Sentences(
        nothing, nothing, np.empty(0, np.uint32), 0, (characters, characters), different
    )
    return proposal._sized(count, train)


def sized(count: int, characters: float = 43.0, different: int = 90) -> configuration.Config:
    changes, lines = reasons(count, characters, different)
    assert len(lines) == 3
    config = presets.load(changes.pop("preset")).config
    return configuration.with_changes(config, changes)


def test_sizes_follow_the_data() -> None:
    tiny, small, middle, large = (sized(n) for n in (500, 29_000, 300_000, 4_500_000))
    base, multi30k = presets.load("base").config, presets.load("multi30k-en-de").config
    assert small.model == multi30k.model == tiny.model
    assert large.model == base.model
    assert middle.model == presets.load("table3-C-d_model-256").config.model
    # 11 tokens a sentence, on both sides, each piece a hundred times.
    assert (tiny.vocabulary.size, small.vocabulary.size) == (proposal.LEAST_PIECES, 6000)
    assert sized(10_000).vocabulary.size == 2200
    assert (middle.vocabulary.size, large.vocabulary.size) == (37_000, 37_000)
    assert [c.train.steps for c in (tiny, small, middle, large)] == [2000, 2000, 16_000, 40_000]
    assert sized(90_000).train.steps == 2300  # no more than the preset has
    assert sized(4_500_000, 4.3 * 27).train.steps == base.train.steps
    for config in (tiny, small, middle, large):
        assert (config.cluster.workers, config.cluster.gpus_per_worker) == (2, 0)
        assert config.train.tokens_per_pass <= 4000
        assert config.sweep.method == "none"


def test_of_a_small_corpus_it_says_what_is_true() -> None:
    """200 pairs have about 4400 pieces; 100 of each would be too small a vocabulary."""
    _, vocabulary, steps = reasons(200)[1]
    assert vocabulary == (
        f"  vocabulary.size {proposal.LEAST_PIECES}: the fewest that are proposed for 90 "
        "characters, and 6,000 is the preset's"
    )
    assert steps.endswith("; a model that sees its pairs so often learns them by heart")
    _, vocabulary, steps = reasons(10_000)[1]
    assert "vocabulary.size 2,200: each piece occurs 100 times or more on average" in vocabulary
    assert "by heart" not in steps


def test_a_vocabulary_has_room_for_all_characters() -> None:
    """As of Chinese: 5000 pairs would have a hundred of each of 1000 pieces."""
    assert sized(5000, 40.0, 2003).vocabulary.size == 4000
    assert "for 2,003 characters" in reasons(5000, 40.0, 2003)[1][1]


def test_devices_are_those_that_are_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    config = sized(2_000_000)
    assert (config.cluster.workers, config.cluster.gpus_per_worker) == (4, 1)
    assert config.train.tokens_per_pass == presets.load("base").config.train.tokens_per_pass


@pytest.mark.parametrize(("cpus", "workers"), [(1, 1), (64, 2)])
def test_no_more_workers_than_cpus(
    monkeypatch: pytest.MonkeyPatch, cpus: int, workers: int
) -> None:
    monkeypatch.setattr(proposal, "available_cpus", lambda: cpus)
    assert sized(500).cluster.workers == workers


@pytest.mark.parametrize(
    ("number", "rounded"), [(0, 0), (7.4, 7), (99, 99), (123, 120), (1987, 2000)]
)
def test_two_digits_count(number: float, rounded: int) -> None:
    assert proposal._rounded(number) == rounded


# --- refused -------------------------------------------------------------------------------------


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that refuses; nothing is written."""
    before = Path("params.yaml").read_bytes()
    line = refusal(capsys, "init", *arguments, "--force")
    assert Path("params.yaml").read_bytes() == before
    return line


def test_an_edited_params_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    write("train", pairs(100))
    Path("params.yaml").write_text("mine: 1\n")
    assert main(["init", *MINE]) == 2
    assert "would be lost: copy it elsewhere, or add --force" in capsys.readouterr().err
    assert Path("params.yaml").read_text() == "mine: 1\n"
    Path("params.yaml").unlink()
    assert main(["init", *MINE]) == 0


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (b"a\nb\nc\n", b"a\nb\n", "train.en has 3 lines but corpora/mine/train.de has 2 lines"),
        (b"", b"", "train.en is empty"),
        (
            b"a\n",
            b"b\n",
            "train.en and train.de have 1 different sentences: to hold some out there",
        ),
        (b"a\nb\nc\n", b"d\ne\nf\n", "must be 4 on each side, or files of each split"),
        (b"a\n\xff\n", b"b\nc\n", "train.en line 2: not UTF-8 at byte 1"),
        (b"x" * (17 << 20), b"b\n", "train.en line 1 is longer than 16 MiB"),
        (b"a\nb\nc\n", b"a\nb\nc\n", "train.en and train.de hold the same text"),
        (b"\n \n\0\n", b"a\nb\nc\n", "none of 3 pairs of train.en and train.de can be trained on"),
        (b"a\nb\nc\nd\n", b"x\nx\nx\nx\n", "have 1 different sentences"),
    ],
)
def test_texts_that_cannot_be_used(
    source: bytes, target: bytes, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write("train", [])
    Path("corpora/mine/train.en").write_bytes(source)
    Path("corpora/mine/train.de").write_bytes(target)
    assert message in refused(capsys, *MINE)


def test_odd_lines_are_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """CRLF, a byte order mark, NUL, U+2028 and a last line without an end."""
    write("train", [])
    lines = [f"{source}\u2028\0" for source, _ in pairs(60)]
    Path("corpora/mine/train.en").write_text("\ufeff" + "\r\n".join(lines), encoding="utf-8")
    text = "".join(f"{target}\n" for _, target in pairs(60))
    Path("corpora/mine/train.de").unlink()
    Path("corpora/mine/train.de.gz").write_bytes(gzip.compress(text.encode()))
    assert init() == 0
    assert "60 pairs, 60 of them clean, 0 of those repeated" in capsys.readouterr().out


def test_gzip_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    write("train", pairs(50))
    Path("corpora/mine/train.de").rename("corpora/mine/train.de.gz")
    assert "train.de.gz: not valid gzip, it looks like plain text" in refused(capsys, *MINE)


def test_a_folder_that_dvc_writes_into_is_no_corpus(capsys: pytest.CaptureFixture[str]) -> None:
    Path("dvc.yaml").write_text("stages: {download: {cmd: x, outs: [data/raw]}}\n")
    write("train", pairs(100), ".")
    write("train", pairs(100), "data")
    for where, held in (
        (".", "this project"),
        ("data", "data/raw"),
        (str(Path.cwd()), "this project"),
    ):
        line = refused(capsys, where, "--from", "en", "--to", "de")
        assert f"{where} holds {held}, and" in line
        assert "DVC watches all of data.folder: move the corpus into a folder of its own" in line
    assert "train.en is missing" in refused(capsys, "nowhere/train.en", "train.de")


def test_a_corpus_elsewhere_is_named_in_full(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    away = tmp_path_factory.mktemp("away")
    write("train", pairs(100), str(away))
    for number in range(proposal.MANY_ENTRIES):
        (away / f"other{number}").touch()
    made = proposal.propose(find(str(away / "train"), None, ("en", "de")), Path())
    assert made.config.data.folder == str(away.resolve())
    assert any("and DVC watches them all" in line for line in made.lines)
    inside = os.path.relpath(away)
    assert main(["init", f"{inside}/train.en", f"{inside}/train.de", "--force"]) == 0
    assert configuration.load(Path("params.yaml")).data.folder == str(away.resolve())


# --- the keys ------------------------------------------------------------------------------------


FILES = {"data.dataset": "files", "data.files.train": ["a", "b"], "data.files.valid": ["c", "d"]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "data.files.test must be two files, [source, target], not []"),
        (
            {"data.files.test": ["e"]},
            "data.files.test must be two files, [source, target], not ['e']",
        ),
        (
            {"data.files.test_pairs": 5, "data.files.valid_pairs": 5},
            "data.files.valid_pairs must be 0, or data.files.valid [], not 5",
        ),
        ({"data.files.test_pairs": -1}, "data.files.test_pairs must be at least 0"),
        (
            {"data.files.test_pairs": 5, "prepare.drop": ["empty"]},
            "prepare.drop must be with contamination, as data.files holds some of train out",
        ),
        (
            {
                "data.files.test_pairs": 5,
                "data.target": "trees",
                "model.target_symbols": 9,
                "model.tie_embeddings": False,
            },
            "data.files.test_pairs must be 0 for data.target trees, not 5",
        ),
    ],
)
def test_keys_that_contradict_each_other(changes: dict[str, object], message: str) -> None:
    with pytest.raises(UserError) as caught:
        configuration.with_changes(presets.load("phrasebook").config, FILES | changes)
    assert message in str(caught.value)


def test_more_than_there_is_cannot_be_planned() -> None:
    write("train", pairs(10))
    files = {"data.files.train": ["train.en", "train.de"], "data.files.valid": []}
    asked = {"data.files.valid_pairs": 9, "data.files.test_pairs": 1, "data.folder": "corpora/mine"}
    config = configuration.with_changes(presets.load("phrasebook").config, FILES | files | asked)
    with pytest.raises(UserError, match="holds 10 pairs out of 10 for training"):
        known_pairs(config)


def test_held_out_pairs_are_nothing_for_another_dataset() -> None:
    asked = {"data.files.valid_pairs": 9, "prepare.drop": []}
    configuration.with_changes(presets.load("phrasebook").config, asked)
