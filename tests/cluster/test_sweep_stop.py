"""A sweep that is asked to end saves its trials, and goes on with nothing lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from seq2sweep import config as configuration
from seq2sweep.config import Config
from seq2sweep.errors import EXIT_INTERRUPTED
from seq2sweep.runs.layout import checkpoint_step, resume_point
from tests.cluster.chaos import LONGEST_WAIT, assert_same
from tests.cluster.sweeps import SweepStage, alone, scale_of
from tests.conftest import Corpus

STEPS = 100


@pytest.fixture
def config(tiny_config: Config) -> Config:
    """Two trials with few checkpoints of their own."""
    return configuration.with_changes(
        tiny_config,
        {
            "train.steps": STEPS,
            "train.log_every": 50,
            "train.validate_every": 50,
            "model.dropout": 0.1,
            "evaluate.beam": 1,
            "sweep.space": {"train.learning_rate_scale": [0.3]},
            "sweep.grace_steps": STEPS,
        },
    )


@pytest.mark.thorough
def test_sigterm(
    config: Config,
    tiny_corpus: Corpus,
    tmp_path: Path,
    make_stage: Callable[[str, Config], SweepStage],
) -> None:
    stage = make_stage("sweep", config)
    process = stage.start()
    stage.wait_for(lambda: len(stage.updates()) >= 10)
    process.terminate()
    assert stage.process is not None
    assert stage.process.wait(timeout=LONGEST_WAIT) == EXIT_INTERRUPTED, stage.said()[-2000:]
    assert stage.statuses() == {}
    begun = {update.scale for update in stage.updates()}
    assert stage.run_statuses()["variant"]["KILLED"] >= len(begun)
    for name, folder in stage.trials().items():
        scale, saved = scale_of(name, config), resume_point(folder)
        # On a busy machine the second one may not have begun.
        assert (saved is not None) == (scale in begun)
        if saved is not None:
            steps = [update.step for update in stage.updates() if update.scale == scale]
            assert checkpoint_step(saved) == max(steps) < STEPS

    stage.start()
    stage.finish()
    assert set(stage.statuses().values()) == {"finished"}
    assert len(stage.updates()) == len(stage.steps()) == 2 * STEPS, "no update is done again"
    expected = alone(config, tiny_corpus, tmp_path / "alone")
    for name, folder in stage.trials().items():
        assert_same(folder, expected[name], STEPS)
