"""Trials of several workers each come out as those of one worker do."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from seq2sweep import config as configuration
from seq2sweep.cluster.tune_trial import segments
from seq2sweep.config import Config
from seq2sweep.errors import EXIT_INTERRUPTED, UserError
from seq2sweep.runs import journal
from tests.cluster.chaos import LONGEST_WAIT
from tests.cluster.sweeps import SweepStage, alone, last_steps, scale_of
from tests.conftest import Corpus

IDLE = 1e-9


@pytest.fixture
def config(tiny_config: Config) -> Config:
    """Two trials, one of which learns nothing; figures do not depend on the workers."""
    return configuration.with_changes(
        tiny_config,
        {
            "train.steps": 40,
            "train.warmup_steps": 18,
            "train.log_every": 5,
            "train.validate_every": 5,
            "model.dropout": 0.0,
            "evaluate.beam": 1,
            # At the paper's rate this small model doubles what rounding does every few steps.
            "train.learning_rate_scale": 0.3,
            "sweep.space": {"train.learning_rate_scale": [IDLE]},
            "sweep.grace_steps": 18,
            "sweep.reduction_factor": 3,
            "sweep.workers_per_trial": 2,
        },
    )


def test_segments_end_where_tune_decides(config: Config) -> None:
    assert segments(config, []) == [40]
    assert segments(config, [18]) == [20, 40]
    assert segments(config, [5, 18, 39]) == [5, 20, 40]


def test_workers_have_whole_cpus_and_gpus(config: Config) -> None:
    for key in ("sweep.cpus_per_trial", "sweep.gpus_per_trial"):
        with pytest.raises(UserError, match=rf"{key} must be a whole number where"):
            configuration.with_changes(config, {key: 0.5})


def assert_alike(folder: Path, reference: Path, until: int) -> None:
    """The same entries as the reference up to a step, with the same figures but for rounding."""
    found = list(journal.entries(folder / "journal.jsonl"))
    expected = [e for e in journal.entries(reference / "journal.jsonl") if e["step"] <= until]
    assert [(e["kind"], e["step"]) for e in found] == [(e["kind"], e["step"]) for e in expected]
    for name in ("loss", "perplexity", "gradient_norm", "valid_loss"):
        here, there = ([e[name] for e in entries if name in e] for entries in (found, expected))
        assert here == pytest.approx(there, rel=1e-4), name


@pytest.mark.thorough
def test_two_workers_a_trial(
    config: Config,
    tiny_corpus: Corpus,
    tmp_path: Path,
    make_stage: Callable[[str, Config], SweepStage],
) -> None:
    """With ASHA, interrupted in the middle."""
    expected = alone(config, tiny_corpus, tmp_path / "alone")
    ends = last_steps(config, expected)
    assert sorted(ends.values()) == [20, 40]
    stage = make_stage("sweep", config)
    process = stage.start()
    stage.wait_for(lambda: len(stage.steps()) > 30)
    process.terminate()
    assert stage.process is not None
    assert stage.process.wait(timeout=LONGEST_WAIT) == EXIT_INTERRUPTED, stage.said()[-2000:]
    stage.start()
    stage.finish()
    report = json.loads((stage.project / "reports" / "sweep.json").read_text())
    assert {t["status"] for t in report["trials"]} == {"finished", "stopped early"}
    assert Counter(Counter(stage.updates()).values()).keys() == {2}, "each worker, each step once"
    reached = dict.fromkeys(ends, 0)
    scales = {scale_of(name, config): name for name in ends}
    for scale, step in stage.steps():
        reached[scales[scale]] = max(reached[scales[scale]], step)
    assert reached == ends, "no worker trains beyond the step where its trial was stopped"
    for name, folder in stage.trials().items():
        assert_alike(folder, expected[name], ends[name])
