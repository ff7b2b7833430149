"""Section 5 in the loop itself: its steps and figures against the same written out in float64."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from seq2sweep import config as configuration
from seq2sweep.config import Config
from seq2sweep.data.batching import collate, plan_epoch
from seq2sweep.data.bitext import Bitext
from seq2sweep.data.vocabulary import PAD
from seq2sweep.model.transformer import Transformer
from seq2sweep.train.events import CheckpointDue, Logged, Validated
from seq2sweep.train.loop import train

from ..conftest import Corpus

STEPS = 4
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def config(tiny_config: Config) -> Config:
    changes = {
        "model.dropout": 0.0,
        "train.steps": STEPS,
        "train.log_every": 1,
        "train.validate_every": STEPS,
        "train.checkpoint_every": STEPS,
        "train.warmup_steps": 3,
        "train.label_smoothing": 0.2,
        "train.tokens_per_update": 400,
        "train.tokens_per_pass": 150,
    }
    return configuration.with_changes(tiny_config, changes)


def log_probabilities(model: Transformer, bitext: Bitext, ids: np.ndarray) -> torch.Tensor:
    """Log-probabilities [pieces, V] of every target position of these sentences, one by one."""
    rows, pieces = [], []
    for i in ids:
        batch = collate(bitext, np.array([i]))
        assert not batch.target_out.eq(PAD).any()
        rows.append(torch.log_softmax(model(batch.source, batch.target_in)[0], dim=-1))
        pieces.append(batch.target_out[0])
    found = torch.cat(rows)
    return torch.cat((found, torch.cat(pieces).to(found.dtype).unsqueeze(1)), dim=1)


def losses(found: torch.Tensor, smoothing: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Smoothed loss and negative log-likelihood, a piece on average."""
    table, pieces = found[:, :-1], found[:, -1].long()
    right = table[range(len(pieces)), pieces]
    smoothed = (1 - smoothing) * right + smoothing * table.mean(dim=1)
    return -smoothed.mean(), -right.mean()


def test_steps_and_figures_equal_the_paper_written_out(
    config: Config, tiny_corpus: Corpus, tmp_path: Path
) -> None:
    logged: list[dict[str, float]] = []
    validated: list[dict[str, float]] = []
    for event in train(config, tiny_corpus.encoded, device=CPU):
        if isinstance(event, Logged):
            logged.append(event.metrics)
        elif isinstance(event, Validated):
            validated.append(event.metrics)
        elif isinstance(event, CheckpointDue):
            event.capture().write(tmp_path / "end")
    torch.manual_seed(config.train.seed)
    model = Transformer(config.model, tiny_corpus.size).double()
    bitext = Bitext.open(tiny_corpus.encoded, "train")
    plan = plan_epoch(
        bitext.source_lengths,
        bitext.target_lengths,
        tokens_per_update=400,
        seed=config.train.seed,
        epoch=0,
    )
    parameters = dict(model.named_parameters())
    start = {name: p.detach().clone() for name, p in parameters.items()}
    first = {name: torch.zeros_like(p) for name, p in parameters.items()}
    second = {name: torch.zeros_like(p) for name, p in parameters.items()}
    for step in range(1, STEPS + 1):
        smoothed, plain = losses(log_probabilities(model, bitext, plan[step - 1]), 0.2)
        gradients = torch.autograd.grad(smoothed, list(parameters.values()))
        # Section 5.3: equation 3 with d_model 32 and 3 warm-up steps.
        rate = 32**-0.5 * min(step**-0.5, step * 3**-1.5)
        with torch.no_grad():
            for (name, parameter), gradient in zip(parameters.items(), gradients, strict=True):
                first[name] = 0.9 * first[name] + 0.1 * gradient
                second[name] = 0.98 * second[name] + 0.02 * gradient**2
                mean, square = first[name] / (1 - 0.9**step), second[name] / (1 - 0.98**step)
                parameter -= rate * mean / (square.sqrt() + 1e-9)
        seen = logged[step - 1]
        assert seen["loss"] == pytest.approx(smoothed.item(), rel=1e-4)
        assert seen["perplexity"] == pytest.approx(math.exp(plain.item()), rel=1e-4)
        assert seen["learning_rate"] == pytest.approx(rate)
        norm = math.sqrt(sum(float(g.square().sum()) for g in gradients))
        assert seen["gradient_norm"] == pytest.approx(norm, rel=1e-3)
    weights = load_file(tmp_path / "end" / "model.safetensors")
    for name, parameter in parameters.items():
        # Numbers whose gradient is near nothing go anywhere, so the whole tensor is judged.
        error = (weights[name].double() - parameter).norm()
        assert error < 1e-3 * (parameter - start[name]).norm(), name
    valid = Bitext.open(tiny_corpus.encoded, "valid")
    with torch.no_grad():
        everything = np.arange(len(valid.target_lengths))
        _, plain = losses(log_probabilities(model, valid, everything), 0.2)
    assert validated[-1]["valid_loss"] == pytest.approx(plain.item(), rel=1e-4)
    assert validated[-1]["valid_perplexity"] == pytest.approx(math.exp(plain.item()), rel=1e-4)


def test_validation_knows_no_dropout_and_training_does(
    config: Config, tiny_corpus: Corpus, tmp_path: Path
) -> None:
    changes = {"model.dropout": 0.5, "train.steps": 1, "train.learning_rate_scale": 1e-9}
    found = {}
    for dropout in (0.0, 0.5):
        changes["model.dropout"] = dropout
        some = configuration.with_changes(config, changes)
        for event in train(some, tiny_corpus.encoded, device=CPU):
            if isinstance(event, Logged | Validated):
                found[event.kind, dropout] = event.metrics
    dry, wet = found["validated", 0.0]["valid_loss"], found["validated", 0.5]["valid_loss"]
    assert wet == pytest.approx(dry, rel=1e-6)
    assert abs(found["logged", 0.5]["loss"] - found["logged", 0.0]["loss"]) > 0.01


def test_bf16_is_used_where_asked_for_and_weights_stay_float32(
    config: Config, tiny_corpus: Corpus, tmp_path: Path
) -> None:
    found = {}
    for precision in ("float32", "bf16"):
        some = configuration.with_changes(config, {"train.precision": precision})
        for event in train(some, tiny_corpus.encoded, device=CPU):
            if isinstance(event, Logged):
                found[precision] = event.metrics["loss"]
            elif isinstance(event, CheckpointDue):
                event.capture().write(tmp_path / precision)
        for name in ("model", "optimizer"):
            tensors = load_file(tmp_path / precision / f"{name}.safetensors")
            assert {tensor.dtype for tensor in tensors.values()} == {torch.float32}
    difference = abs(found["bf16"] - found["float32"])
    assert 1e-6 < difference < 0.02 * found["float32"]


def test_a_deterministic_run_asks_for_it(
    config: Config, tiny_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[torch.device] = []
    monkeypatch.setattr("seq2sweep.train.loop.be_deterministic", asked.append)
    for deterministic in (False, True):
        some = configuration.with_changes(config, {"train.deterministic": deterministic})
        next(train(some, tiny_corpus.encoded, device=CPU))
        assert asked == [CPU] * deterministic
