"""Sums are those that DVC itself finds."""

from __future__ import annotations

import json
import subprocess
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from dvc_data.hashfile.build import build
from dvc_data.hashfile.db import HashFileDB
from dvc_objects.fs import LocalFileSystem

from seq2sweep import code_fingerprint, presets, yaml_text
from seq2sweep import config as configuration
from seq2sweep.data import files
from seq2sweep.errors import OperationalError, UserError
from seq2sweep.jobs import dvc_stages
from seq2sweep.stages.stage import dataset_in_words

ROOT = Path(__file__).parents[2]


def code_of(project: Path, stage: str, config: configuration.Config) -> dict[str, str]:
    """What `dvc_stages.code` says of a stage in a new project with this configuration."""
    if not (project / "pipeline").exists():
        (project / "pipeline").symlink_to(ROOT / "pipeline")
    (project / "dvc.yaml").write_bytes((ROOT / "dvc.yaml").read_bytes())
    (project / "params.yaml").write_text(configuration.dump(config), encoding="utf-8")
    return dvc_stages.code(project, stage)


def test_a_file_in_another_encoding_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "dvc.yaml").write_bytes("stages: {}  # für\n".encode("latin-1"))
    with pytest.raises(UserError, match=r"^dvc\.yaml has no `stages` that can be read"):
        dvc_stages.described(tmp_path)


BOMB = "a0: &a0 [x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 7)
)
"""A million values of seven lines."""


@pytest.mark.parametrize(
    "text",
    [
        BOMB + "stages: {train: {outs: [{path: x, md5: *a6}]}}\n",
        "stages: " + "[" * 2_000,
        "stages: {train: {outs: [{path: x, md5: [1]}]}}\n",
        "stages: {train: {outs: [{path: 5, md5: x}]}}\n",
    ],
    ids=["bomb", "deep", "no sum", "no path"],
)
def test_a_lock_of_a_stranger_is_read_within_bounds(tmp_path: Path, text: str) -> None:
    (tmp_path / "dvc.lock").write_text(text)
    with pytest.raises(UserError, match=r"^dvc\.lock is damaged"):
        dvc_stages.sums(tmp_path)


def test_a_lock_is_read_that_has_thousands_of_files_in_several_stages(tmp_path: Path) -> None:
    """As many as params.yaml may name: DVC writes each on a line of its own, once for a stage."""
    names = [f"trees/section-{number:02}/wsj_{number:05}.mrg" for number in range(4000)]
    read_by = ("download", "prepare", "report")
    stages = {
        stage: {"cmd": "a command", "params": {"params.yaml": {"data.files": {"train": [*names]}}}}
        for stage in read_by
    }
    (tmp_path / "dvc.lock").write_text(yaml.safe_dump({"schema": "2.0", "stages": stages}))
    assert (tmp_path / "dvc.lock").stat().st_size > 2 * yaml_text.MOST_BYTES
    found = dvc_stages.params(tmp_path, "report")
    assert found == {"data.files": {"train": names}}


def test_of_a_large_file_that_a_stage_reads_the_size_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stage starts in tenths of a second; what has changed is in a header beside it."""
    monkeypatch.setattr(dvc_stages, "WHOLE_BYTES", 2)
    (tmp_path / "text").write_text("abc")
    (tmp_path / "small").write_text("ab")
    reads = {"deps": ["text", "small", "is/not/there"]}
    first = dvc_stages.deps_now(tmp_path, reads)
    assert set(first) == {"text", "small"}
    assert first["text"] == "3 bytes"
    (tmp_path / "small").write_text("ac")
    assert dvc_stages.deps_now(tmp_path, reads)["small"] != first["small"]
    assert dvc_stages.deps_now(tmp_path, {}) == {}


def test_a_sum_is_that_of_dvc(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    for name, text in {"b": "1", "a.txt": "", 'a/ä "x': "2", "a/deep/c": "3\r\n"}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, newline="")
    system = LocalFileSystem()
    store = HashFileDB(system, str(tmp_path / "store"))
    for out in (folder, folder / "a" / "deep" / "c"):
        _, _, found = build(store, str(out), system, "md5", dry_run=True)
        assert dvc_stages.sum_of(out) == found.hash_info.value


@pytest.mark.parametrize("stage", ["report", "attention"])
def test_what_names_the_data_in_headings_is_a_parameter(stage: str) -> None:
    config = presets.load("phrasebook").config
    params = dvc_stages.described(ROOT)[stage]["params"]
    for key, other in {"dataset": "ptb", "source": "xx", "target": "yy"}.items():
        renamed = replace(config, data=replace(config.data, **{key: other}))
        assert dataset_in_words(renamed) != dataset_in_words(config)
        assert f"data.{key}" in params


@pytest.mark.parametrize("stage", ["train", "evaluate", "teacher", "student", "sweep"])
def test_what_receipts_and_scores_say_of_text_is_a_parameter(stage: str) -> None:
    """Where the text is as these have it already, data/clean stays the same."""
    params = dvc_stages.described(ROOT)[stage]["params"]
    assert {"prepare.normalise", "prepare.lowercase"} <= {p for p in params if isinstance(p, str)}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("", "status 255"),
        (
            "ERROR: you are not inside of a DVC repository\n",
            "you are not inside of a DVC repository",
        ),
        (
            "ERROR: unexpected error - [Errno 13] Permission denied: 'lock'\n\n"
            "Having any troubles? Hit us up at https://dvc.org/support, we are always happy\n",
            "unexpected error - [Errno 13] Permission denied: 'lock'",
        ),
        ("Traceback\nKeyError: 1\n", "KeyError: 1"),
    ],
)
def test_of_what_dvc_says_the_reason_is_told(said: str, why: str) -> None:
    done = subprocess.CompletedProcess(["dvc"], 255, "", said)
    assert dvc_stages.why_failed(done) == why


def runs_again(project: Path, stage: str, config: configuration.Config, *changes: Any) -> list[Any]:
    """Those of the changes for which a stage would run again."""
    before = code_of(project, stage, config)
    return [
        change
        for change in changes
        if code_of(project, stage, configuration.with_changes(config, change)) != before
    ]


def test_silver_runs_again_for_the_search_that_it_does(tmp_path: Path) -> None:
    config = presets.load("parsing-semi").config
    its_own: list[dict[str, Any]] = [
        {"self_training.beam": 7},
        {"evaluate.alpha": 0.9},
        {"evaluate.precision": "bf16"},  # which params.yaml may leave out
    ]
    others = [{"evaluate.beam": 7}, {"evaluate.tokens_per_batch": 7}]  # it has a beam of its own
    assert runs_again(tmp_path, "silver", config, *its_own, *others) == its_own
    # And DVC itself looks at nothing of it.
    entries = dvc_stages.described(ROOT)["silver"]["params"]
    assert not [entry for entry in entries if str(entry).startswith("evaluate")]


def test_table1_and_attention_run_again_for_their_own_settings_alone(tmp_path: Path) -> None:
    config = presets.load("phrasebook").config
    changes: dict[str, list[dict[str, Any]]] = {
        "table1": [{"table1.kernel": 5}],
        "attention": [{"attention.sentences": 0}, {"attention.measured": 10}],
    }
    every = [change for of in changes.values() for change in of]
    for stage, own in changes.items():
        assert runs_again(tmp_path, stage, config, *every) == own


def test_text_is_encoded_again_for_what_the_same_vocabulary_file_does_not_say(
    tmp_path: Path,
) -> None:
    """A key to come may change how text is cut, not the vocabulary: DVC would run nothing more."""
    before = presets.load("phrasebook").config
    after = configuration.with_changes(before, {"vocabulary.size": 99})
    changed = [
        stage
        for stage in ("prepare", "vocabulary", "encode", "train")
        if code_of(tmp_path, stage, before) != code_of(tmp_path, stage, after)
    ]
    assert changed == ["encode"]  # dvc.yaml itself names the section for `vocabulary`


def test_of_the_data_silver_names_what_it_reads() -> None:
    """Both parse all sentences again for a change of these: data.private is none."""
    entries = dvc_stages.described(ROOT)["silver"]["params"]
    named = {entry for entry in entries if isinstance(entry, str)}
    assert named == {f"data.{key}" for key in ("dataset", "folder", "phrasebook", *files.SIDES)}


def test_download_names_all_of_the_data_but_what_it_does_not_read() -> None:
    """It reads through millions of pairs or trees."""
    entries = dvc_stages.described(ROOT)["download"]["params"]
    named = {entry for entry in entries if isinstance(entry, str)}
    keys = {field.name for field in fields(configuration.DataConfig)}
    assert named == {f"data.{key}" for key in keys - {"private"}}


def test_download_runs_again_for_other_sections_alone(tmp_path: Path) -> None:
    config = presets.load("parsing").config
    sections = {"parsing.train_sections": (2, 3)}
    others = {"parsing.words": 200}, {"parsing.tags": True}
    assert runs_again(tmp_path, "download", config, sections, *others) == [sections]


def test_a_teacher_is_trained_again_for_its_seed_and_no_sentence(tmp_path: Path) -> None:
    given = {"self_training.sentences": 12_000, "self_training.files": ["more.txt"]}
    config = configuration.with_changes(presets.load("parsing-semi").config, given)
    its_own = [{"self_training.seed": 7}, {"self_training.sentences": 0}]
    others = (
        {"self_training.beam": 7},
        {"self_training.sentences": 20_000},
        {"self_training.files": ["other.txt"]},
    )
    assert runs_again(tmp_path, "teacher", config, *its_own, *others) == its_own


def test_a_name_that_dvc_cannot_write_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DVC's own words do not say which."""
    config = configuration.with_changes(presets.load("phrasebook").config, {"data.folder": "mine"})
    (tmp_path / "params.yaml").write_text(configuration.dump(config), encoding="utf-8")
    (tmp_path / "mine").mkdir()
    said = "ERROR: unexpected error - 'utf-8' codec can't encode character '\\udce9'"
    done = subprocess.CompletedProcess(["dvc"], 255, "", said)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    with pytest.raises(OperationalError, match="dvc status failed: unexpected error - 'utf-8'"):
        dvc_stages.changes(tmp_path)
    (tmp_path / "mine/caf\udce9").touch()
    with pytest.raises(UserError, match="mine/caf\udce9 has a name that is not UTF-8"):
        dvc_stages.changes(tmp_path)


@pytest.mark.parametrize("same", [True, False])
def test_another_data_folder_is_told_before_the_stage_fingerprint_has_run(
    same: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is not the same byte by byte may mean the same."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "dvc.yaml").write_bytes((ROOT / "dvc.yaml").read_bytes())
    config = configuration.with_changes(presets.load("phrasebook").config, {"data.folder": "mine"})
    (tmp_path / "params.yaml").write_text(configuration.dump(config), encoding="utf-8")
    (tmp_path / "mine/data.py").write_text("A = 1\n")
    before = dvc_stages.meaning_of_folder(tmp_path, config)
    (tmp_path / "mine/data.py").write_text("A = 1  # one\n" if same else "A = 2\n")
    monkeypatch.setattr(dvc_stages, "code", lambda project, stage: {})
    recorded = {"download": code_fingerprint.of_parts({}), "folder": before}
    stages = {"download": {"cmd": "a", "params": {"code.json": recorded}}}
    (tmp_path / "dvc.lock").write_text(yaml.safe_dump({"schema": "2.0", "stages": stages}))
    said = json.dumps({"fingerprint": [{"changed deps": {"mine": "modified"}}]})
    done = subprocess.CompletedProcess(["dvc"], 0, said, "")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    changed: dict[str, Any] = {
        "download": [{"changed deps": {"code.json": {"data.folder": "modified"}}}]
    }
    assert dvc_stages.changes(tmp_path, "download") == ({} if same else changed)
    # What it says of code is of when the stage fingerprint ran: of no section of params.yaml.
    others = {"changed deps": {"params.yaml": {"download": "modified"}}}
    code = {"code.json": {"download": "modified"}}
    told = [
        {"changed deps": others["changed deps"] | code},
        {"changed deps": code},
        "always changed",
    ]
    monkeypatch.setattr(done, "stdout", json.dumps(json.loads(said) | {"download": told}))
    found = dvc_stages.changes(tmp_path, "download")["download"]
    assert found[-2:] == [others, "always changed"]
    assert found[:-2] == ([] if same else changed["download"])
