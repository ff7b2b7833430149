"""Section 5: an update is the same however it is shared out, and the same again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch import distributed as dist

from seq2sweep import config as configuration
from seq2sweep.config import Config
from seq2sweep.data.batching import Batch, passes, plan_epoch, share
from seq2sweep.data.bitext import Bitext
from seq2sweep.data.vocabulary import BOS
from seq2sweep.model.architecture.transformer import Transformer
from seq2sweep.train import loop, step

from ..conftest import Corpus
from ..processes import run_together

CPU = torch.device("cpu")
UPDATES = 3
WORLDS = (1, 2, 4)
PASSES = (1, 2, 4)
FEW = "fewer sentences than workers"
AT_ONCE = "2 passes, and an exchange of all gradients at once"
"""As on GPUs, where passes are CUDA graphs: here they are computed."""


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def observe(
    config: Config, encoded: Path, rank: int = 0, world: int = 1, at_once: bool = False
) -> dict[str, Tensor]:
    """Train, and note all that an update is.

    Returns for each step from 1 `step passes`, the number of passes that this worker computed,
    `step sums`, its [loss, negative log-likelihood], and `step gradient name`, with which the
    optimiser was called; at last `weights name`.
    """
    seen: dict[str, Tensor] = {}
    counts: list[int] = []

    def counting(model: nn.Module, batches: list[Batch], **options: Any) -> tuple[Tensor, Tensor]:
        counts.append(len(batches))
        seen[f"{len(counts)} passes"] = torch.tensor(len(batches))
        sums = step.accumulate(model, batches, **options)
        seen[f"{len(counts)} sums"] = torch.stack(sums)
        return sums

    def noting(model: nn.Module, *options: Any) -> tuple[Tensor, Tensor]:
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None
            seen[f"{len(counts)} gradient {name}"] = parameter.grad.clone()
        done = step.apply(model, *options)
        seen.update({f"weights {name}": w.detach().clone() for name, w in model.named_parameters()})
        return done

    def without_graphs(model: nn.Module, *options: Any) -> step.Passes:
        made = step.Passes(model, *options)
        made.works = False
        return made

    with pytest.MonkeyPatch.context() as patch:
        if at_once:
            patch.setattr(loop, "packs_all", lambda *_: True)
            patch.setattr(loop, "Passes", without_graphs)
        patch.setattr(loop, "accumulate", counting)
        patch.setattr(loop, "apply", noting)
        for _ in loop.train(config, encoded, rank=rank, world_size=world, device=CPU):
            pass
    return seen


def work(rank: int, configs: dict[int, dict[str, Config]], encoded: Path, folder: Path) -> None:
    """One worker, in each world that is large enough to have it: observe each configuration."""
    torch.set_num_threads(1)
    for world in configs:
        if rank < world:
            meeting = f"file://{folder / f'meeting of {world}'}"
            wait = timedelta(seconds=300)
            dist.init_process_group("gloo", meeting, wait, rank=rank, world_size=world)
            for name, config in configs[world].items():
                save_file(
                    observe(config, encoded, rank, world, name == AT_ONCE),
                    folder / f"{world}.{name}.{rank}.safetensors",
                )
            dist.destroy_process_group()


def plan(config: Config, bitext: Bitext) -> list[Any]:
    """The sentences of the first updates."""
    epoch = plan_epoch(
        bitext.source_lengths,
        bitext.target_lengths,
        tokens_per_update=config.train.tokens_per_update,
        seed=config.train.seed,
        epoch=0,
    )
    return [epoch[update] for update in range(UPDATES)]


def tokens_per_pass(config: Config, bitext: Bitext, world: int, count: int) -> int:
    """As many as make `count` passes of every worker's share of every update."""
    shares = [share(ids, rank, world) for ids in plan(config, bitext) for rank in range(world)]
    lengths = bitext.source_lengths, bitext.target_lengths
    return next(
        tokens
        for tokens in range(config.train.tokens_per_update, 0, -1)
        if all(len(passes(ids, *lengths, tokens)) == count for ids in shares)
    )


@pytest.fixture(scope="module")
def plain(tiny_config: Config) -> Config:
    """Nothing random, three updates."""
    return configuration.with_changes(
        tiny_config,
        {
            "model.dropout": 0.0,
            "train.steps": UPDATES,
            "train.validate_every": UPDATES,
            "train.tokens_per_update": 400,
            "train.tokens_per_pass": 400,
        },
    )


@pytest.fixture(scope="module")
def few(plain: Config) -> Config:
    """Updates of one or two sentences, which four workers must share."""
    return configuration.with_changes(plain, {"train.tokens_per_update": 40})


Seen = dict[tuple[int, str], list[dict[str, Tensor]]]


@pytest.fixture(scope="module")
def seen(
    plain: Config, few: Config, tiny_corpus: Corpus, tmp_path_factory: pytest.TempPathFactory
) -> Seen:
    """What each worker saw, by world and by number of passes (or FEW)."""
    folder, encoded = tmp_path_factory.mktemp("worlds"), tiny_corpus.encoded
    bitext = Bitext.open(encoded, "train")
    configs: dict[int, dict[str, Config]] = {}
    for world in WORLDS:
        configs[world] = {FEW: few}
        for count in PASSES:
            tokens = tokens_per_pass(plain, bitext, world, count)
            changes = {"train.tokens_per_pass": tokens}
            configs[world][str(count)] = configuration.with_changes(plain, changes)
        configs[world][AT_ONCE] = configs[world]["2"]
    with one_thread():
        found = {
            (1, name): [observe(config, encoded, at_once=name == AT_ONCE)]
            for name, config in configs.pop(1).items()
        }
    run_together(work, [(rank, configs, encoded, folder) for rank in range(max(WORLDS))])
    for world, names in configs.items():
        for name in names:
            files = [folder / f"{world}.{name}.{rank}.safetensors" for rank in range(world)]
            found[world, name] = [load_file(file) for file in files]
    return found


def fresh_model(config: Config, corpus: Corpus) -> Transformer:
    torch.manual_seed(config.train.seed)
    return Transformer(config.model, corpus.size)


def one_by_one(config: Config, corpus: Corpus) -> tuple[dict[str, Tensor], list[float]]:
    """The first update by the definition: a sentence at a time, a piece at a time, in float64.

    Returns its gradients, of the smoothed cross-entropy (section 5.4) summed over all target
    pieces and divided by how many there are, and the sums [loss, negative log-likelihood].
    """
    bitext = Bitext.open(corpus.encoded, "train")
    model = fresh_model(config, corpus).double()
    epsilon = config.train.label_smoothing
    loss = likelihood = torch.zeros((), dtype=torch.float64)
    pieces = 0
    for sentence in plan(config, bitext)[0]:
        source = torch.tensor(bitext.source(sentence).astype("int64"))
        target = bitext.target(sentence).tolist()
        log_p = torch.log_softmax(
            model(source[None], torch.tensor([[BOS, *target[:-1]]]))[0], dim=-1
        )
        for position, piece in enumerate(target):
            right, every = log_p[position, piece], log_p[position].mean()
            loss = loss - (1 - epsilon) * right - epsilon * every
            likelihood = likelihood - right
            pieces += 1
    (loss / pieces).backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return gradients, [loss.item(), likelihood.item()]


def distance(actual: Tensor, expected: Tensor) -> float:
    """Of two gradients, relative to the length of the second."""
    return float((actual.double() - expected).norm() / expected.double().norm())


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", [*map(str, PASSES), FEW, AT_ONCE])
def test_any_number_of_workers_and_passes_gives_the_same_weights(
    seen: Seen, plain: Config, few: Config, tiny_corpus: Corpus, world: int, name: str
) -> None:
    config = few if name == FEW else plain
    expected = seen[1, FEW if name == FEW else "1"][0]
    gradients, sums = one_by_one(config, tiny_corpus)
    start = dict(fresh_model(config, tiny_corpus).named_parameters())
    together = torch.stack([actual["1 sums"] for actual in seen[world, name]]).double().sum(0)
    assert together.tolist() == pytest.approx(sums, rel=1e-6)
    for actual in seen[world, name]:
        assert actual.keys() == expected.keys()
        if name != FEW:
            assert [int(actual[f"{n} passes"]) for n in (1, 2, 3)] == [int(name[0])] * UPDATES
        for parameter in start:
            # Before anything has moved, sums in another order differ by their rounding.
            first = actual[f"1 gradient {parameter}"]
            assert distance(first, expected[f"1 gradient {parameter}"]) < 1e-6, parameter
            assert distance(first, gradients[parameter]) < 1e-6, parameter
            # Adam's first steps have the size of the learning rate whatever the gradient's, so
            # numbers whose gradient is all rounding go anywhere: the whole tensor is judged, by
            # how far it has moved.
            for update in range(2, UPDATES + 1):
                key = f"{update} gradient {parameter}"
                assert distance(actual[key], expected[key]) < 1e-3, key
            weights = expected[f"weights {parameter}"]
            moved = (weights - start[parameter]).norm()
            assert (actual[f"weights {parameter}"] - weights).norm() < 1e-3 * moved, parameter
    # Workers never see each other's weights: these must be the same bits.
    for key in expected:
        if "passes" not in key and "sums" not in key:
            assert all(torch.equal(seen[world, name][0][key], a[key]) for a in seen[world, name])


def test_there_are_fewer_sentences_than_workers(few: Config, tiny_corpus: Corpus) -> None:
    """Else the case above would show nothing."""
    sizes = [len(ids) for ids in plan(few, Bitext.open(tiny_corpus.encoded, "train"))]
    assert max(sizes) < max(WORLDS)


@pytest.mark.parametrize(("threads", "steps"), [(1, 4), (2, 1)])
def test_the_same_seed_gives_the_same_bits(
    tiny_config: Config, tiny_corpus: Corpus, threads: int, steps: int
) -> None:
    """With every kind of dropout, and products large enough for several threads."""
    changes = {
        "model.dropout": 0.1,
        "model.attention_dropout": 0.1,
        "model.feed_forward_dropout": 0.1,
        "train.steps": steps,
        "train.validate_every": steps,
        "train.tokens_per_update": 2000,
        "train.tokens_per_pass": 2000,
    }
    config = configuration.with_changes(tiny_config, changes)
    torch.set_num_threads(threads)  # conftest sets it back
    first, again = (observe(config, tiny_corpus.encoded) for _ in range(2))
    assert first.keys() == again.keys()
    assert all(torch.equal(first[key], again[key]) for key in first)
    torch.set_num_threads(1)
    for change in ({"train.seed": 2}, {"model.dropout": 0.0}):
        other = observe(configuration.with_changes(config, change), tiny_corpus.encoded)
        key = "1 gradient source_embedding.weight"
        assert not torch.equal(other[key], first[key])
