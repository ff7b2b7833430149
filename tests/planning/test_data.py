"""The plan of the data stages: by the registry and what is there already, without side effect."""

from __future__ import annotations

import gzip
import json
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seq2sweep import cli, console, presets
from seq2sweep import config as configuration
from seq2sweep.config import Config
from seq2sweep.data.archives import Text
from seq2sweep.data.sources import REGISTRY
from seq2sweep.errors import UserError
from seq2sweep.planning import data as plan_module
from seq2sweep.planning.data import data_plan, known_pairs
from seq2sweep.planning.plan import plan as whole_plan
from seq2sweep.planning.render import overview
from seq2sweep.planning.workload import workload


def config_of(preset: str, folder: Path, **changes: Any) -> Config:
    paths = {"data.folder": str(REGISTRY), "download.folder": str(folder)}
    return configuration.with_changes(presets.load(preset).config, paths | changes)


Page = Callable[[dict[str, Any]], str]


@pytest.fixture
def page_of(project: Path) -> Page:
    """The page of a plan with this part of it about data."""
    others = whole_plan(project)
    return lambda data: overview(others | {"data": data})


def test_silver_writes_the_treebank_once_more(tmp_path: Path) -> None:
    """Beside what both parsers agree on, as text and encoded."""

    def disk(sentences: int) -> dict[str, Any]:
        changes = {"self_training.sentences": sentences, "self_training.files": ["more.txt"]}
        config = config_of("parsing-craft", tmp_path, **changes)
        return data_plan(config, stages=["silver"], counted={"train": 27_000})["disk"]

    assert (disk(0)["clean"], disk(0)["encoded"]) == (0, 0)
    assert disk(1000)["clean"] == int(28_000 * plan_module.CLEAN_BYTES_PER_PAIR)
    assert disk(1000)["encoded"] == int(28_000 * plan_module.ENCODED_BYTES_PER_PAIR)


def test_wmt14_english_german_by_the_figures_of_its_host(tmp_path: Path, page_of: Page) -> None:
    plan = data_plan(config_of("wmt14-en-de-base", tmp_path / "not" / "yet"))
    found = {file["file"]: file for file in plan["download"]["files"]}
    assert {name: file["bytes"] for name, file in found.items()} == {
        "training-parallel-europarl-v7.tgz": 657_632_379,
        "training-parallel-commoncrawl.tgz": 918_311_367,
        "training-parallel-nc-v9.tgz": 80_418_416,
        "dev.tgz": 38_654_961,
        "test-full.tgz": None,
    }
    assert plan["download"]["bytes"] == plan["download"]["missing_bytes"] == 1_695_017_123
    assert plan["download"]["unknown_sizes"] == 1
    assert plan["pairs"] == 4_500_000
    disk = plan["disk"]
    assert disk["needed"] == 1_695_017_123 + disk["clean"] + disk["encoded"] + disk["cache"]
    assert set(plan["seconds"]) == {"download", "prepare", "vocabulary", "encode"}
    assert plan["seconds"]["download"] > 1_695_017_123 / 10e6
    assert {path.name for path in tmp_path.iterdir()} == {"infra", "params.yaml"}
    shown = page_of(plan)
    assert "1.70GB of 1.70GB, and 1 of unknown size" in shown
    assert "https://www.statmt.org/wmt13/training-parallel-europarl-v7.tgz" in shown


@pytest.mark.parametrize(
    ("preset", "changes", "seconds"),
    [
        ("wmt14-en-fr-big", {"vocabulary.sentences": 100_000}, 2),
        ("wmt14-en-fr-big", {"vocabulary.sentences": 2_000_000}, 40),
        ("wmt14-en-fr-big", {"vocabulary.sentences": 20_000_000}, 400),
        ("wmt14-en-fr-big", {"vocabulary.kind": "unigram"}, 8),  # 400 000 at most
        ("wmt14-en-fr-big", {"vocabulary.kind": "bytes"}, 0),
        ("phrasebook", {"data.phrasebook.train": 100_000}, 4),
        ("parsing", {"data.phrasebook.train": 100_000}, 2),  # symbols of trees are no pieces
    ],
)
def test_a_vocabulary_takes_as_long_as_its_sentences(
    preset: str, changes: dict[str, Any], seconds: float, tmp_path: Path
) -> None:
    plan = data_plan(config_of(preset, tmp_path, **changes))
    assert plan["seconds"]["vocabulary"] == pytest.approx(seconds)


def test_what_is_there_is_not_fetched_again(tmp_path: Path, page_of: Page) -> None:
    mirrors = {"https://raw.githubusercontent.com/": "file:///cache/"}
    config = config_of("multi30k-en-de", tmp_path, **{"download.mirrors": mirrors})
    whole = data_plan(config)["download"]["bytes"]
    (tmp_path / "train.en.gz").write_bytes(bytes(568_929))
    (tmp_path / "train.de.gz.partial").write_bytes(bytes(100_000))
    (tmp_path / "val.en.gz").write_bytes(bytes(7))  # not its size
    plan = data_plan(config)
    assert plan["download"]["missing_bytes"] == whole - 568_929 - 100_000
    shown = page_of(plan)
    assert "100kB there" in shown
    assert "file:///cache/multi30k/dataset/master/data/task1/raw/train.en.gz" in shown
    assert shown.count("missing") == 4


def test_passwords_in_a_registry_are_not_shown(tmp_path: Path, page_of: Page) -> None:
    own = tmp_path / "own"
    shutil.copytree(REGISTRY, own)
    for path in own.rglob("*.yaml"):
        text = path.read_text("utf-8")
        path.write_text(text.replace("https://raw.", "https://user:hunter2@raw."), "utf-8")
    config = config_of("multi30k-en-de", tmp_path, **{"data.folder": str(own)})
    plan = data_plan(config)
    assert "https://raw.githubusercontent.com/" in page_of(plan)
    assert "hunter2" not in page_of(plan) + json.dumps(plan)


def test_a_disk_that_is_too_small_is_said(tmp_path: Path, page_of: Page) -> None:
    plan = data_plan(config_of("wmt14-en-fr-big", tmp_path))
    plan["disk"]["short"] = "/here"
    assert "NOT ENOUGH in /here\n" in page_of(plan)


def test_every_disk_is_looked_at_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Downloads on one disk, data and checkpoints on another, or all on one."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    monkeypatch.chdir(tmp_path / "b")
    disks, free = {"a": 1, "b": 2}, {"a": 2 * 10**9, "b": 10**12}

    class Disk(type(tmp_path)):  # type: ignore[misc]
        def stat(self, **_: Any) -> Any:
            return SimpleNamespace(st_dev=disks[self.name], st_mode=0)

    def usage(path: Path) -> Any:
        return SimpleNamespace(free=free[path.name])

    def existing(path: Path) -> Path:
        return Disk(tmp_path / ("a" if path == Path("downloads") else "b"))

    monkeypatch.setattr(plan_module.shutil, "disk_usage", usage)
    monkeypatch.setattr(plan_module, "_existing", existing)
    config = config_of("multi30k-en-de", Path("downloads"))

    def short(downloads: int, checkpoints: int, models: int = 0) -> Any:
        return plan_module._disk(config, downloads, 0, 0, models, checkpoints)["short"]

    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    assert short(10**9, 10**11) is None
    assert short(3 * 10**9, 1) == a
    assert short(10**9, 2 * 10**12) == b
    # Of what is exported into the project DVC keeps a copy, whatever the disk of the checkpoints.
    with monkeypatch.context() as patch:
        patch.setattr(
            plan_module, "_existing",
            lambda path: Disk(tmp_path / ("b" if path == Path(config.cluster.folder) else "a")),
        )  # fmt: skip
        assert short(0, 10**11, 10**9) is None
        assert short(0, 1, 1 + 10**9) == a
    disks["b"] = 1  # one disk: the needs add up
    assert short(10**9, 10**9) is None
    assert short(10**9, 2 * 10**9) == a


def test_data_that_are_here_already(tmp_path: Path, page_of: Page) -> None:
    plan = data_plan(config_of("phrasebook", tmp_path))
    assert plan["pairs"] == presets.load("phrasebook").config.data.phrasebook.train
    assert "  Nothing to download\n" in page_of(plan)
    (folder := tmp_path / "own").mkdir()
    own = {"data.dataset": "files", "data.folder": str(folder)}
    for split in ("train", "valid", "test"):
        own |= {f"data.files.{split}": [f"{split}.en", f"{split}.de"]}
        for side in ("en", "de"):
            (folder / f"{split}.{side}").write_text("a\nb\nc\n")
    (folder / "train.de").unlink()
    with pytest.raises(UserError, match=r"train\.de is missing: check data\.folder"):
        data_plan(config_of("phrasebook", tmp_path, **own))
    (folder / "train.de").write_text("a\nb\nc\n")
    assert data_plan(config_of("phrasebook", tmp_path, **own))["pairs"] == 3
    (folder / "train.de").write_text("a\nb\n")
    with pytest.raises(UserError, match=r"train\.en has 3 lines but .*train\.de has 2 lines"):
        data_plan(config_of("phrasebook", tmp_path, **own))


SEGMENTS = '<doc docid="d">' + "".join(f'<seg id="{n}">a</seg>\n' for n in range(11)) + "</doc>"


@pytest.mark.parametrize("packed", [(), (0,), (1,), (0, 1)], ids=str)
def test_own_files_are_counted_packed_or_not(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    packed: tuple[int, ...],
) -> None:
    counts = {"train": 1237, "valid": 29, "test": 11}
    own: dict[str, Any] = {"data.dataset": "files", "data.folder": str(tmp_path)}
    for split, count in counts.items():
        names = []
        for side in (0, 1):
            end = ".sgm" * (split == "test") + ".gz" * (side in packed)
            names.append(f"{split}.{side}{end}")
            text = SEGMENTS if split == "test" else "".join(f"{n}\u2028x\n" for n in range(count))
            content = text.encode()
            (tmp_path / names[-1]).write_bytes(
                gzip.compress(content) if names[-1].endswith(".gz") else content
            )
        own[f"data.files.{split}"] = names
    config = config_of("phrasebook", tmp_path, **own)
    # Of a bar that waits for no second.
    monkeypatch.setattr(console, "bar", lambda what, unit: {"desc": what, "mininterval": 0})
    assert known_pairs(config) == counts
    shown = capsys.readouterr().err
    assert [f"count {split}: {n}it" in shown for split, n in counts.items()] == [True] * 3
    plan = data_plan(config)
    assert (plan["pairs"], plan["counted"]) == (1237, True)
    load = workload(config, known_pairs(config), None)
    assert (load.pairs, len(load.valid[0]), len(load.test[0])) == (1237, 29, 11)


def test_what_download_has_counted_is_not_counted_again(tmp_path: Path) -> None:
    splits = {"train": [{"lines": 40}, {"lines": 2}], "valid": [{"lines": 3}], "test": []}
    (tmp_path / "provenance.json").write_text(json.dumps({"splits": splits}))
    config = config_of("wmt14-en-de-base", tmp_path)
    assert known_pairs(config, tmp_path) == {"train": 42, "valid": 3, "test": 0}
    assert known_pairs(config) == {"train": 4_500_000}  # about
    assert not data_plan(config)["counted"]


def test_a_registry_of_ones_own_says_about_how_many_pairs_it_has(tmp_path: Path) -> None:
    text = (REGISTRY / "multi30k.yaml").read_text("utf-8")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "own.yaml").write_text(text.replace("pairs: 29000", "pairs: 0"), "utf-8")
    config = config_of("multi30k-en-de", tmp_path / "x", **{"data.folder": str(tmp_path / "own")})
    with pytest.raises(
        UserError, match=r": datasets\.multi30k has 0 as pairs: state about how many"
    ):
        known_pairs(config)
    # They are asked for where nobody has counted.
    splits = {split: [{"lines": 9}] for split in ("train", "valid", "test")}
    (tmp_path / "provenance.json").write_text(json.dumps({"splits": splits}))
    assert known_pairs(config, tmp_path)["train"] == 9


def test_counting_takes_no_memory(tmp_path: Path) -> None:
    """Of two texts of 15 MB."""
    for name in ("a.gz", "b.gz"):
        with gzip.open(tmp_path / name, "wb", compresslevel=1) as stream:
            for n in range(15):
                stream.write((f"{n} " + "word " * 20 + "\n").encode() * 10_000)
    tracemalloc.start()
    try:
        assert (
            plan_module._count("train", [(Text(tmp_path / "a.gz"), Text(tmp_path / "b.gz"))])
            == 150_000
        )
        assert tracemalloc.get_traced_memory()[1] < 4e6
    finally:
        tracemalloc.stop()


def test_what_is_made_already_needs_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Downloads, data and checkpoints add up, whether their folders are there already or not."""
    monkeypatch.chdir(tmp_path)
    config = config_of("multi30k-en-de", Path("not/yet"))
    parts = ("downloads", "clean", "encoded", "models", "cache", "checkpoints")
    disk = data_plan(config, checkpoints=10**9, models=10**8)["disk"]
    assert disk["needed"] == sum(disk[part] for part in parts)
    assert all(disk[part] > 0 for part in parts)
    assert disk["cache"] == disk["clean"] + disk["encoded"] + disk["models"]
    disk = data_plan(config, checkpoints=5, stages=("train",))["disk"]
    assert (disk["needed"], disk["clean"], disk["downloads"]) == (5, 0, 0)


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["plan"]) == 2
    assert "params.yaml is missing" in capsys.readouterr().err
    config = config_of("wmt14-en-de-base", tmp_path)
    Path("params.yaml").write_text(configuration.dump(config))
    assert cli.main(["plan", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)["data"]
    made = data_plan(config, printed["disk"]["checkpoints"], models=printed["disk"]["models"])
    assert 2 * printed["disk"]["models"] < printed["disk"]["checkpoints"]
    assert printed["download"] == made["download"]
    assert printed["seconds"] == made["seconds"]
    assert cli.main(["plan"]) == 0
    assert "To download into" in capsys.readouterr().out
    Path("params.yaml").write_text(configuration.dump(config).replace("wmt14-en-de", "wmt14-ende"))
    assert cli.main(["plan"]) == 2
    assert "did you mean wmt14" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["params.yaml"]
