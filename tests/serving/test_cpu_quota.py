"""A model that a command, a stage or MLflow opens has no more threads than the quota of CPUs."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pipeline import attention, silver
from seq2sweep.cli import main
from seq2sweep.commands.trained import opened, opened_together
from seq2sweep.config import Config
from seq2sweep.errors import UserError
from seq2sweep.serving import cpu_quota
from seq2sweep.serving.pyfunc import _load_pyfunc
from seq2sweep.stages.scoring import score_model

from ..conftest import Corpus
from ..export import made_up_models


@pytest.mark.parametrize(("quota", "threads"), [(2, 2), (3, 3), (8, 3)])
def test_a_model_gets_the_threads_that_the_quota_allows(
    tiny_config: Config,
    tiny_corpus: Corpus,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    quota: int,
    threads: int,
) -> None:
    made_up_models.translator(tmp_path, tiny_config, tiny_corpus).save(tmp_path / "model")
    name = str(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cpu_quota, "available_cpus", lambda: quota)
    for opens in (
        lambda: opened(Namespace(model=name, weights=None)),
        lambda: opened_together(Namespace(members=[name])),
        lambda: _load_pyfunc(name),
        lambda: main(["evaluate"]),  # which finds no project here
        lambda: main(["why", name]),
    ):
        torch.set_num_threads(3)  # conftest sets it back
        opens()
        assert torch.get_num_threads() == threads


@pytest.mark.parametrize("stage", ["score_model", "attention", "silver"])
def test_a_stage_that_computes_here_has_no_more_either(
    tiny_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    config = replace(
        tiny_config,
        attention=replace(tiny_config.attention, sentences=1),
        self_training=replace(tiny_config.self_training, sentences=1),
    )
    begins = {
        "score_model": lambda: score_model(config, tmp_path, "evaluate", tmp_path / "table.tsv"),
        "attention": lambda: attention.work(config),
        "silver": lambda: silver.work(config),
    }
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cpu_quota, "available_cpus", lambda: 2)
    torch.set_num_threads(3)  # conftest sets it back
    with pytest.raises(UserError):  # there is no data here
        begins[stage]()
    assert torch.get_num_threads() == 2
