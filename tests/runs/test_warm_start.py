"""A run that only goes on for longer begins where the shorter one ended."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import shutil
import threading
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from seq2sweep import config as configuration
from seq2sweep.config import Config, loading
from seq2sweep.config.fields import field
from seq2sweep.config.schema import TrainConfig
from seq2sweep.errors import UserError
from seq2sweep.runs import journal, warm_start
from seq2sweep.runs.journal import Journal
from seq2sweep.runs.layout import (
    JOURNAL_NAME,
    Retention,
    checkpoint_name,
    checkpoints,
    interrupted_name,
    prune,
    resume_point,
)
from seq2sweep.runs.warm_start import Identity, Origin, begin, begin_sweep, run_name
from seq2sweep.storage.atomic import write_json
from seq2sweep.storage.locks import only_user
from seq2sweep.train import checkpointing
from seq2sweep.train.events import CheckpointDue, Interrupted
from seq2sweep.train.loop import train
from tests.cluster.checkpoints import damage, whole_checkpoints
from tests.conftest import Corpus

TIMES = {"time", "tokens_per_second", "seconds_left", "rss_bytes",
         "peak_rss_bytes", "cpu_percent", "memory_percent", "train_seconds", "wall_seconds",
         "device_hours", "flops_per_second"}  # fmt: skip


CODE = {"seq2sweep.model.layers": "1", "seq2sweep.train.loop": "2"}


def identity(config: Config, **changes: Any) -> Identity:
    flat = configuration.identity(config, "model", "train")
    return flat | {"data": "d", "vocabulary": "v", "code": "c"} | changes


class Project:
    """A storage folder, and runs in it as workers make them."""

    def __init__(self, config: Config, encoded: Path, storage: Path) -> None:
        self.config, self.encoded, self.storage = config, encoded, storage
        self.said: str | None = None
        self.code: dict[str, str] = {}

    def run(self, changes: dict[str, Any], *, until: int = 0, **other: Any) -> Path:
        """Train a changed configuration, perhaps only until a step; returns its folder."""
        config = configuration.with_changes(self.config, changes)
        what = identity(config, **other)
        folder = self.storage / run_name(what)
        kept = Retention.of(config).always()
        self.said = begin(folder, Origin(what, CODE | self.code, config.train.log_every), kept)
        writer = Journal(folder / JOURNAL_NAME)
        self.computed = 0

        def stop() -> bool:
            self.computed += 1
            return self.computed == until

        for event in train(
            config,
            self.encoded,
            device=torch.device("cpu"),
            resume=resume_point(folder),
            stop=stop,
        ):
            if isinstance(event, Interrupted):
                event.capture().write(folder / interrupted_name(event.step))
                break
            writer.append(event)
            if isinstance(event, CheckpointDue):
                event.capture().write(folder / checkpoint_name(event.step))
        writer.close()
        return folder


@pytest.fixture
def project(tiny_config: Config, tiny_corpus: Corpus, tmp_path: Path) -> Project:
    config = configuration.with_changes(tiny_config, {"model.dropout": 0.2})
    return Project(config, tiny_corpus.encoded, tmp_path / "runs")


def told(folder: Path) -> list[dict[str, Any]]:
    entries = list(journal.entries(folder / JOURNAL_NAME))
    return [{key: value for key, value in e.items() if key not in TIMES} for e in entries]


def with_losses(folder: Path, losses: dict[int, float]) -> None:
    """Give each step that was validated another loss."""
    entries = list(journal.entries(folder / JOURNAL_NAME))
    for entry in entries:
        if entry["kind"] == "validated":
            entry["valid_loss"] = losses[entry["step"]]
    (folder / JOURNAL_NAME).write_text("".join(json.dumps(entry) + "\n" for entry in entries))


def with_number(folder: Path, tokens: int) -> None:
    """Let it be what auto chose as the run began."""
    entries = [e for e in journal.entries(folder / JOURNAL_NAME) if e["kind"] != "sized"]
    entries.insert(0, {"kind": "sized", "step": 0, "tokens_per_pass": tokens})
    (folder / JOURNAL_NAME).write_text("".join(json.dumps(entry) + "\n" for entry in entries))


def same_end(one: Path, other: Path) -> bool:
    newest = [checkpoints(folder)[-1] for folder in (one, other)]
    return newest[0].name == newest[1].name and all(
        (newest[0] / name).read_bytes() == (newest[1] / name).read_bytes()
        for name in ("model.safetensors", "optimizer.safetensors")
    )


def test_more_steps_begin_where_the_run_ended(project: Project, tmp_path: Path) -> None:
    short = project.run({"train.steps": 12})
    assert project.said is None
    longer = project.run({"train.steps": 16, "train.keep_checkpoints": 3})
    assert project.said is not None
    assert f"resumes after step 12 of {short}: " in project.said
    assert "train.steps was 12 and is 16 now" in project.said
    assert project.computed == 4
    assert longer != short
    assert [path.name for path in checkpoints(short)] == [checkpoint_name(s) for s in (4, 8, 12)]
    assert [path.name for path in checkpoints(longer)] == [
        checkpoint_name(step) for step in (4, 8, 12, 16)
    ]
    project.storage = tmp_path / "elsewhere"
    whole = project.run({"train.steps": 16, "train.keep_checkpoints": 3})
    assert project.said is None
    assert same_end(longer, whole)
    assert told(longer) == told(whole)
    assert json.loads((longer / "run.json").read_text())["identity"]["train.steps"] == 16


@pytest.mark.parametrize(
    ("optimizer", "computed"),
    [("adam_constant", 4), ("nesterov", 4), ("adam_then_sgd", 16), ("as_published", 4)],
)
def test_more_steps_begin_anew_where_the_rate_depends_on_their_number(
    project: Project, tmp_path: Path, optimizer: str, computed: int
) -> None:
    changes = {"train.optimizer": optimizer}
    project.run({"train.steps": 12} | changes)
    longer = project.run({"train.steps": 16} | changes)
    assert project.computed == computed
    project.storage = tmp_path / "elsewhere"
    assert same_end(longer, project.run({"train.steps": 16} | changes))


@pytest.mark.parametrize(
    ("architecture", "resumes"),
    [
        ({}, True),
        ({"model.architecture": "convolutional 1a2b3c4d"}, True),
        ({"model.architecture": "bytenet 1a2b3c4d"}, True),
        ({"model.architecture": "recurrent 1a2b3c4d"}, False),
    ],
)
def test_as_published_begins_anew_where_the_rate_of_that_model_does(
    project: Project, architecture: dict[str, Any], resumes: bool
) -> None:
    short, longer = ({"train.steps": n, "train.optimizer": "as_published"} for n in (4, 5))
    earlier: dict[str, Any] = {"model.architecture": "of_an_earlier_version"}
    project.run(short, **earlier)
    project.run(short, **architecture)
    project.run(longer, **architecture)
    assert project.said is not None
    assert project.said.startswith("resumes after step 4 of ") is resumes


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnnealedTrain(TrainConfig):
    smoothing_end: float | None = field("reached at the end", default=None, by_length=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Annealed(Config):
    train: AnnealedTrain = field("TRAINING")


@pytest.mark.parametrize(
    ("end", "more", "resumes"),
    [
        (None, {"train.steps": 5}, True),
        (0.2, {"train.steps": 5}, False),
        (0.2, {"train.steps": 4, "train.keep_checkpoints": 3}, True),
    ],
)
def test_more_steps_begin_anew_with_a_key_whose_effect_depends_on_their_number(
    project: Project, end: float | None, more: Any, resumes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not where it has its default, by which nothing does."""
    monkeypatch.setattr(loading, "Config", Annealed)
    project.config = configuration.parse(configuration.dump(project.config))
    own = {"train.smoothing_end": end, "train.checkpoint_every": 2, "train.validate_every": 2}
    project.run({"train.steps": 4} | own)
    project.run(own | more)
    assert project.said is not None
    assert project.said.startswith("resumes after step ") is resumes
    assert project.said.startswith("starts a new run: ") is not resumes


def test_a_run_of_another_kind_than_the_default_is_no_beginning(project: Project) -> None:
    gated = project.run({"train.steps": 8, "model.feed_forward": "swiglu"})
    project.run({"train.steps": 12})
    assert project.computed == 12
    assert project.said is not None
    assert f"starts a new run: {gated}, at step 8, differs in model.feed_forward was swiglu " in (
        project.said
    )
    assert " and is relu now" in project.said
    more = project.run({"train.steps": 12, "model.feed_forward": "swiglu"})
    assert project.said.startswith(f"resumes after step 8 of {gated}")
    assert project.computed == 4
    assert more != gated


@pytest.mark.parametrize(
    ("end", "log_every", "shared"),
    [
        (11, 2, 8),  # it logs and validates once more
        (8, 3, 4),  # it logs once more
        (10, 2, 8),  # it validates once more
    ],
)
def test_an_end_that_is_no_step_of_the_longer_run_is_left_out(
    project: Project, tmp_path: Path, end: int, log_every: int, shared: int
) -> None:
    """There the short run logs or validates once more; the longer one never did."""
    changes = {"train.log_every": log_every}
    project.run({"train.steps": end} | changes)
    longer = project.run({"train.steps": 16} | changes)
    assert project.said is not None
    assert f"resumes after step {shared} of" in project.said
    project.storage = tmp_path / "elsewhere"
    whole = project.run({"train.steps": 16} | changes)
    assert same_end(longer, whole)
    assert told(longer) == told(whole)


def test_fewer_steps_take_what_is_left_of_them(project: Project) -> None:
    project.run({"train.steps": 16})
    shorter = project.run({"train.steps": 10})
    assert project.said is not None
    assert "resumes after step 8 of" in project.said
    assert [entry["step"] for entry in told(shorter) if entry["kind"] == "finished"] == [10]


def test_what_fewer_steps_never_reach_displaced_one_of_their_best(project: Project) -> None:
    long = project.run({"train.steps": 16, "train.keep_best": 1})
    with_losses(long, {4: 1.0, 8: 2.0, 12: 2.0, 16: 0.0})
    shutil.rmtree(long / checkpoint_name(4))
    project.run({"train.steps": 12, "train.keep_best": 1})
    assert project.computed == 12


def test_from_an_interruption_between_checkpoints(project: Project, tmp_path: Path) -> None:
    stopped = project.run({"train.steps": 12}, until=7)
    assert resume_point(stopped) == stopped / interrupted_name(7)
    longer = project.run({"train.steps": 16})
    assert project.said is not None
    assert "resumes after step 7 of" in project.said
    assert project.computed == 9
    project.storage = tmp_path / "elsewhere"
    whole = project.run({"train.steps": 16})
    assert same_end(longer, whole)
    assert told(longer) == told(whole)


def test_other_intervals_of_checkpoints(project: Project) -> None:
    """Those that the new run would not have had are only good to go on from."""
    project.run({"train.steps": 12})
    other = project.run({"train.steps": 18, "train.checkpoint_every": 9})
    assert "resumes after step 8 of" in str(project.said)  # it keeps step 9, which the first lacks
    assert [path.name for path in checkpoints(other) if path.name.startswith("step")] == [
        checkpoint_name(step) for step in (9, 18)
    ]


def test_what_is_to_be_kept_must_be_there(project: Project) -> None:
    """The short run has lost a step that the longer one keeps, which begins before it."""
    short = project.run({"train.steps": 12})
    shutil.rmtree(short / checkpoint_name(8))
    longer = project.run({"train.steps": 16, "train.keep_checkpoints": 3})
    assert "resumes after step 4 of" in str(project.said)
    assert [path.name for path in checkpoints(longer)] == [
        checkpoint_name(step) for step in (4, 8, 12, 16)
    ]


def test_the_best_of_other_intervals_are_not_known(project: Project) -> None:
    project.run({"train.steps": 12})
    project.run({"train.steps": 16, "train.keep_best": 1})
    assert project.computed == 16
    project.run({"train.steps": 20, "train.keep_best": 1})
    assert "resumes after step 16 of" in str(project.said)


@pytest.mark.parametrize(
    ("changes", "other", "difference"),
    [
        ({"model.dropout": 0.3}, {}, "model.dropout was 0.2 and is 0.3 now"),
        ({"train.seed": 7}, {}, "train.seed was 1 and is 7 now"),
        ({}, {"code": "other"}, "code was c and is other now"),
        ({}, {"data": "other"}, "data was d and is other now"),
        ({}, {"vocabulary": "other"}, "vocabulary was v and is other now"),
    ],
)
def test_another_run_is_not_gone_on_from_and_the_difference_is_told(
    project: Project, changes: dict[str, Any], other: dict[str, str], difference: str
) -> None:
    stopped = project.run({}, until=5)
    project.run(changes, until=3, **other)
    assert project.computed == 3
    assert project.said == f"starts a new run: {stopped}, at step 5, differs in {difference}"


def test_a_run_that_could_not_begin_is_told_of_when_it_does(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder is there with all that says what it is, or not at all."""
    stopped = project.run({}, until=5)
    with monkeypatch.context() as patch:
        patch.setattr(warm_start, "write_json", Mock(side_effect=OSError("full")))
        with pytest.raises(OSError, match="full"):
            project.run({}, until=3, data="other")
    assert [path for path in project.storage.glob("*") if path.is_dir()] == [stopped]
    project.run({}, until=3, data="other")
    assert project.said is not None
    assert project.said.startswith("starts a new run: ")


def test_of_other_code_the_modules_are_told(project: Project) -> None:
    first = project.run({"train.steps": 4})
    project.code = {"seq2sweep.train.loop": "3", "seq2sweep.model.norm": "4"}
    project.run({"train.steps": 4, "train.seed": 2}, code="other")
    assert project.said == (
        f"starts a new run: {first}, at step 4, differs in "
        "code of seq2sweep.model.norm, seq2sweep.train.loop; train.seed was 1 and is 2 now"
    )


def test_an_unfinished_run_is_told_before_a_newer_one(project: Project) -> None:
    stopped = project.run({"train.seed": 3}, until=5)
    project.run({"train.steps": 4})
    project.run({"train.steps": 4, "train.seed": 2})
    assert str(project.said).startswith(f"starts a new run: {stopped}, at step 5, differs in ")


def test_how_often_it_logs_is_no_other_run(project: Project) -> None:
    folder = project.run({}, until=5)
    assert project.run({"train.log_every": 3}) == folder
    assert (project.said, project.computed) == (None, 7)


def test_a_sweep_with_other_code_says_so(tmp_path: Path) -> None:
    first, second = tmp_path / "sweep-1", tmp_path / "sweep-2"
    made_from = Origin({"data": "d", "code": "c"}, CODE)
    assert begin_sweep(first, made_from) is None
    assert begin_sweep(first, made_from) is None
    other = Origin({"data": "d", "code": "o"}, CODE | {"seq2sweep.train.loop": "3"})
    assert begin_sweep(second, other) == (
        f"starts new trials: those of {first} differ in code of seq2sweep.train.loop"
    )


@pytest.mark.parametrize("begun", [0, 2, 5])
def test_a_run_that_was_left_for_another_takes_over_what_that_did(
    project: Project, tmp_path: Path, begun: int
) -> None:
    """0: it had not come to its first step, as where the cluster was down."""
    if begun:
        first = project.run({}, until=begun)
    else:
        what = identity(project.config)
        first = project.storage / run_name(what)
        begin(first, Origin(what, CODE, project.config.train.log_every), ())
    other = project.run({"train.steps": 16}, until=10 - begun)
    assert project.run({}) == first
    assert project.said == (f"resumes after step 10 of {other}: train.steps was 16 and is 12 now")
    assert project.computed == 2  # of twelve
    assert project.run({}) == first
    assert (project.said, project.computed) == (None, 0)
    project.storage = tmp_path / "elsewhere"
    whole = project.run({})
    assert same_end(first, whole)
    assert told(first) == told(whole)
    assert (first / "run.json").read_bytes() == (whole / "run.json").read_bytes()


def test_a_run_that_was_left_stays_where_what_the_other_has_more_is_damaged(
    project: Project,
) -> None:
    first = project.run({}, until=5)
    other = project.run({"train.tokens_per_pass": 200}, until=2)
    damage(other / interrupted_name(7))
    assert project.run({}) == first
    assert (project.said, project.computed) == (None, 7)


def test_a_run_that_was_left_takes_no_steps_of_another_precision(project: Project) -> None:
    """auto chose both; of the two runs only one may be able to go on on a machine."""
    project.config = configuration.with_changes(project.config, {"train.precision": "auto"})
    first = project.run({}, until=5)
    project.run({"train.steps": 16}, until=5)
    for path in checkpoints(first):
        state = json.loads((path / "state.json").read_text())
        assert state["identity"]["train.precision"] == "float32"
        state["identity"]["train.precision"] = "bf16"
        write_json(path / "state.json", state)  # not through a link to the same bytes
    before = checkpoints(first)
    origin = Origin(identity(project.config), CODE)
    assert begin(first, origin, Retention.of(project.config).always()) is None
    assert checkpoints(first) == before


def test_a_run_that_was_left_takes_over_the_most_that_is_whole(project: Project) -> None:
    project.run({}, until=5)
    whole = project.run({"train.tokens_per_pass": 200}, until=2)
    damaged = project.run({"train.steps": 16}, until=3)
    shutil.rmtree(damaged / interrupted_name(7))  # it is the other one's too
    for name in (checkpoint_name(8), interrupted_name(10)):
        damage(damaged / name)
    project.run({})
    assert project.said == (
        f"resumes after step 7 of {whole}: train.tokens_per_pass was 200 and is 300 now"
    )
    assert project.computed == 5


@pytest.mark.parametrize("others", ["auto", 300])
def test_a_run_that_was_left_keeps_the_number_of_tokens_that_auto_chose(
    project: Project, others: str | int
) -> None:
    """As its run in MLflow does."""
    auto: dict[str, Any] = {"train.tokens_per_pass": "auto"}
    first = project.run({}, until=5, **auto)
    with_number(first, 200)
    left_for: dict[str, Any] = {"train.tokens_per_pass": others}
    other = project.run({"train.steps": 16}, until=5, **left_for)
    if others == "auto":
        with_number(other, 250)
    assert project.run({}, **auto) == first
    assert "resumes after step 10 of" in str(project.said)
    found = journal.entries(first / JOURNAL_NAME, "sized")
    assert [(entry["step"], entry["tokens_per_pass"]) for entry in found] == [(0, 200)]


def test_a_run_that_was_left_stays_where_another_process_works_in_it(project: Project) -> None:
    first = project.run({}, until=5)
    project.run({"train.tokens_per_pass": 200}, until=2)
    with only_user(first), pytest.raises(UserError, match=f"is working in {first}: wait"):
        project.run({})
    assert checkpoints(first) == [first / checkpoint_name(4), first / interrupted_name(5)]


def test_a_run_whose_checkpoints_are_elsewhere_is_as_far_as_its_journal_says(
    project: Project,
) -> None:
    """Those of a run in an object store are not in its folder."""
    first = project.run({})
    project.run({"train.steps": 8})
    for path in checkpoints(first):
        shutil.rmtree(path)
    before = (first / JOURNAL_NAME).read_bytes()
    origin, kept = Origin(identity(project.config), CODE), Retention.of(project.config).always()
    assert begin(first, origin, kept, in_bucket=True) is None
    assert (first / JOURNAL_NAME).read_bytes() == before


def test_a_run_that_lost_its_checkpoints_takes_over_those_of_another(project: Project) -> None:
    """In a folder its journal alone is of no use: what comes after is trained and told again."""
    first = project.run({})
    before = told(first)
    other = project.run({"train.steps": 8})
    for path in checkpoints(first):
        shutil.rmtree(path)
    assert project.run({}) == first
    assert str(project.said).startswith(f"resumes after step 8 of {other}: ")
    assert project.computed == 4
    assert told(first) == before
    # But not where the other has no more.
    assert project.run({}) == first
    assert (project.said, project.computed) == (None, 0)


def test_precision_that_auto_chose_may_be_named(project: Project) -> None:
    """auto means float32 here; on a machine where it means bf16, float32 must be asked for."""
    project.run({"train.precision": "auto"}, until=5)
    project.run({"train.precision": "bf16"}, until=1)
    assert project.computed == 1
    assert "differs in train.precision was auto and is bf16 now" in str(project.said)
    project.run({"train.precision": "float32"})
    assert "resumes after step 5" in str(project.said)


def test_a_number_of_tokens_that_auto_chose_is_taken_along_by_another_auto_alone(
    project: Project,
) -> None:
    config = configuration.with_changes(project.config, {"train.tokens_per_pass": "auto"})
    what = identity(config)
    assert what["train.tokens_per_pass"] == "auto"
    project.config = config.sized(200)
    folder = project.run({}, **{"train.tokens_per_pass": "auto"})
    with_number(folder, 200)
    numbers = []
    for tokens in ("auto", 300):
        longer = project.run({"train.steps": 16}, **{"train.tokens_per_pass": tokens})
        assert project.computed == 4
        numbers.append(
            [e["tokens_per_pass"] for e in journal.entries(longer / JOURNAL_NAME, "sized")]
        )
    assert numbers == [[200], []]


def test_damaged_checkpoints_of_a_relative_are_left_out(project: Project) -> None:
    short = project.run({"train.steps": 12})
    weights = checkpoints(short)[-1] / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    longer = project.run({"train.steps": 16})
    assert "resumes after step 8 of" in str(project.said)
    assert resume_point(longer) == longer / checkpoint_name(16)


def test_a_damaged_line_of_the_journal_is_told(project: Project) -> None:
    """Its curves would end there, and the rest be gone without a word."""
    short = project.run({"train.steps": 12})
    path = short / JOURNAL_NAME
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:2], "{torn\n", *lines[2:]]))
    with pytest.raises(UserError, match=rf"^{path} has a damaged line"):
        project.run({"train.steps": 16})
    assert [folder.name for folder in project.storage.glob("train-*")] == [short.name]
    path.write_text("".join(lines))
    project.run({"train.steps": 16})
    assert f"of {short}" in (project.said or "")


def test_a_damaged_one_that_is_to_be_kept_is_done_again(project: Project) -> None:
    short = project.run({"train.steps": 12})
    damage(short / checkpoint_name(8))
    longer = project.run({"train.steps": 16, "train.keep_checkpoints": 3})
    assert "resumes after step 4 of" in str(project.said)
    assert whole_checkpoints(longer) == [longer / checkpoint_name(s) for s in (4, 8, 12, 16)]


def test_a_damaged_one_may_be_among_the_best(project: Project) -> None:
    short = project.run({"train.steps": 12, "train.keep_best": 1})
    damage(short / checkpoint_name(4))
    project.run({"train.steps": 16, "train.keep_best": 1})
    assert project.computed == 16


@pytest.mark.parametrize(("lost", "computed"), [(4, 4), (8, 12)])
def test_one_of_lowest_loss_that_is_gone_is_trained_again(
    project: Project, lost: int, computed: int
) -> None:
    """Else the longer run would end without it."""
    short = project.run({"train.steps": 12, "train.keep_best": 1})
    with_losses(short, {4: 2.0, 8: 1.0, 12: 2.0})
    shutil.rmtree(short / checkpoint_name(lost))
    project.run({"train.steps": 16, "train.keep_best": 1})
    assert project.computed == computed


@pytest.mark.parametrize(
    ("module", "name"),
    [(shutil, "copyfile"), (checkpointing, "verify"), (Path, "read_text")],
)
def test_a_storage_that_fails_for_a_moment_does_not_begin_the_run_anew(
    module: Any, name: str, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = project.run({"train.steps": 12, "train.keep_best": 1, "train.precision": "auto"})
    oldest, work = checkpoints(short)[0].name, getattr(module, name)

    def fails(path: Path, *others: Any, **options: Any) -> Any:
        if oldest in (Path(path).name, Path(path).parent.name):
            raise OSError(errno.EIO, "Input/output error", str(path))
        return work(path, *others, **options)

    def no_link(*paths: Path) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    longer = {"train.steps": 16, "train.keep_best": 1, "train.precision": "float32"}
    with monkeypatch.context() as patched:
        patched.setattr(os, "link", no_link)
        patched.setattr(module, name, fails)
        with pytest.raises(OSError, match="Input/output error"):
            project.run(longer)
    assert [path for path in project.storage.iterdir() if path.is_dir()] == [short]
    project.run(longer)
    assert project.computed == 4


@pytest.mark.parametrize(("lowest", "computed"), [(4, 16), (8, 8)])
def test_an_end_between_checkpoints_may_have_displaced_the_best(
    project: Project, lowest: int, computed: int
) -> None:
    """The longer run has not that end, and begins before what is gone for it."""
    changes = {"train.keep_best": 1, "train.keep_checkpoints": 2}
    short = project.run({"train.steps": 11} | changes)
    with_losses(short, {lowest: 1.0, 12 - lowest: 2.0, 11: 0.0})
    config = configuration.with_changes(project.config, {"train.steps": 11} | changes)
    prune(short, Retention.of(config), checkpoints(short)[-1])
    assert [path.name for path in checkpoints(short)] == [checkpoint_name(s) for s in (8, 11)]
    project.run({"train.steps": 16} | changes)
    assert project.computed == computed


def test_a_step_that_is_named_must_be_there(project: Project) -> None:
    short = project.run({"train.steps": 12, "train.keep_best": 1})
    shutil.rmtree(short / checkpoint_name(4))
    longer = {"train.steps": 16, "train.keep_best": 1}
    project.run({**longer, "evaluate.checkpoint_steps": [4]})
    assert project.computed == 16


def test_several_may_begin_at_once(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    """One after the other."""
    project.storage.mkdir()
    with contextlib.ExitStack() as another:
        another.enter_context(only_user(project.storage, "begin.lock"))
        threading.Timer(0.5, another.close).start()
        project.run({"train.steps": 4})
    assert project.computed == 4
    assert "waiting for another process" in capsys.readouterr().out


def test_a_folder_brought_from_elsewhere_is_taken_as_it_is(
    project: Project, tmp_path: Path
) -> None:
    here = project.run({}, until=6)
    (here / "run.json").unlink()
    there = tmp_path / "there"
    there.mkdir()
    here.rename(there / here.name)
    project.storage = there
    project.run({})
    assert project.computed == 6  # of twelve
    assert json.loads((there / here.name / "run.json").read_text())["identity"]["train.steps"] == 12
