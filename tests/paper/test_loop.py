"""Section 5 in the loop itself: its steps and figures against the same written out in float64."""

from __future__ import annotations

import json
import math
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import distributed as dist

from seq2sweep import config as configuration
from seq2sweep.config import Config
from seq2sweep.data.batching import collate, plan_epoch
from seq2sweep.data.bitext import Bitext
from seq2sweep.data.vocabulary import PAD, Vocabulary
from seq2sweep.model.architecture.transformer import Transformer
from seq2sweep.train import updates
from seq2sweep.train.events import CheckpointDue, Logged, Validated
from seq2sweep.train.loop import train

from ..conftest import Corpus, write_encoded
from ..processes import run_together

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


def test_a_line_is_of_all_updates_since_the_last(config: Config, tiny_corpus: Corpus) -> None:
    lines = {}
    for every in (1, 2):
        some = configuration.with_changes(config, {"train.log_every": every})
        events = train(some, tiny_corpus.encoded, device=CPU)
        lines[every] = [event.metrics for event in events if isinstance(event, Logged)]
    bitext = Bitext.open(tiny_corpus.encoded, "train")
    plan = plan_epoch(
        bitext.source_lengths,
        bitext.target_lengths,
        tokens_per_update=400,
        seed=config.train.seed,
        epoch=0,
    )
    tokens = [int(bitext.target_lengths[plan[update]].sum()) for update in range(STEPS)]
    assert len(lines[2]) == STEPS // 2
    for first, line in zip(range(0, STEPS, 2), lines[2], strict=True):
        pair = slice(first, first + 2)

        def mean(name: str, weights: list[int], pair: slice = pair) -> float:
            values = [
                math.log(m[name]) if name == "perplexity" else m[name] for m in lines[1][pair]
            ]
            return sum(v * w for v, w in zip(values, weights, strict=True)) / sum(weights)

        assert len(set(tokens[pair])) == 2
        assert line["loss"] == pytest.approx(mean("loss", tokens[pair]), rel=1e-5)
        assert math.log(line["perplexity"]) == pytest.approx(
            mean("perplexity", tokens[pair]), rel=1e-5
        )
        assert line["gradient_norm"] == pytest.approx(mean("gradient_norm", [1, 1]), rel=1e-5)
        assert line["learning_rate"] == lines[1][first + 1]["learning_rate"]


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


# --- what chance decides -------------------------------------------------------------------------


def order(config: Config, encoded: Path, count: int, patch: pytest.MonkeyPatch) -> list[int]:
    """The first `count` training sentences in the order in which the loop computes them."""
    seen: list[int] = []

    def noting(bitext: Bitext, ids: np.ndarray) -> object:
        seen.extend(map(int, ids))
        return collate(bitext, ids)

    with patch.context() as inside:
        inside.setattr(updates, "collate", noting)
        for _ in train(config, encoded, device=CPU):
            if len(seen) >= count:
                return seen[:count]
    raise AssertionError("it ended before")


def test_each_epoch_has_all_sentences_in_an_order_of_its_own(
    config: Config, tiny_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = configuration.with_changes(config, {"train.steps": 200})
    sentences = len(Bitext.open(tiny_corpus.encoded, "train"))
    seen = order(long, tiny_corpus.encoded, 3 * sentences, monkeypatch)
    epochs = [seen[first : first + sentences] for first in range(0, len(seen), sentences)]
    for epoch in epochs:
        assert sorted(epoch) == list(range(sentences))
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
    # Nor are they the same updates in another order.
    first = [frozenset(epoch[at : at + 10]) for epoch in epochs for at in (0, 10, 20)]
    assert len(set(first)) == len(first)
    again = order(long, tiny_corpus.encoded, sentences, monkeypatch)
    assert again == epochs[0]
    other = configuration.with_changes(long, {"train.seed": 8})
    assert order(other, tiny_corpus.encoded, sentences, monkeypatch) != epochs[0]


@pytest.fixture(scope="module")
def alike(tiny_corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty times the same pair: all that tells updates and workers apart is their dropout."""
    folder = tmp_path_factory.mktemp("alike")
    pieces = Vocabulary.open(tiny_corpus.vocabulary)
    for split in ("train", "valid"):
        write_encoded(folder, split, ["alpha beta rot"] * 40, ["ALPHA BETA ROT"] * 40, pieces)
    return folder


def still(config: Config, dropout: float) -> Config:
    """An update is an epoch, and changes next to nothing."""
    changes = {
        "model.dropout": dropout,
        "train.learning_rate_scale": 1e-9,
        "train.tokens_per_update": 100_000,
        "train.tokens_per_pass": 100_000,
    }
    return configuration.with_changes(config, changes)


def losses_of(config: Config, encoded: Path) -> list[float]:
    """The loss of each update."""
    events = train(config, encoded, device=CPU)
    return [event.metrics["loss"] for event in events if isinstance(event, Logged)]


def test_each_step_drops_other_numbers(config: Config, alike: Path) -> None:
    dry = losses_of(still(config, 0.0), alike)
    assert dry == pytest.approx([dry[0]] * STEPS, rel=1e-6)
    wet = losses_of(still(config, 0.5), alike)
    assert min(abs(a - b) for i, a in enumerate(wet) for b in wet[:i]) > 1e-5
    assert losses_of(still(config, 0.5), alike) == wet


def sums_of_workers(rank: int, config: Config, encoded: Path, folder: Path) -> None:
    """One of two workers; the first writes down what the checkpoint has of each one's loss."""
    torch.set_num_threads(1)
    wait = timedelta(seconds=300)
    dist.init_process_group("gloo", f"file://{folder / 'meet'}", wait, rank=rank, world_size=2)
    for event in train(config, encoded, rank=rank, world_size=2, device=CPU):
        if isinstance(event, CheckpointDue) and rank == 0:
            sums = event.capture().state["progress"]["window"]["sums"]
            (folder / "sums.json").write_text(json.dumps(sums))
            break
        if isinstance(event, CheckpointDue):
            break
    dist.barrier()
    dist.destroy_process_group()


def test_each_worker_drops_other_numbers(config: Config, alike: Path, tmp_path: Path) -> None:
    found = {}
    for dropout in (0.0, 0.5):
        folder = tmp_path / str(dropout)
        folder.mkdir()
        # A checkpoint before the first line of the console holds each worker's own sums.
        changes = {"train.checkpoint_every": 1, "train.log_every": 3}
        some = configuration.with_changes(still(config, dropout), changes)
        run_together(sums_of_workers, [(rank, some, alike, folder) for rank in range(2)])
        found[dropout] = [loss for loss, *_ in json.loads((folder / "sums.json").read_text())]
    assert found[0.0][0] == pytest.approx(found[0.0][1], rel=1e-6)
    assert abs(found[0.5][0] - found[0.5][1]) > 1e-3
