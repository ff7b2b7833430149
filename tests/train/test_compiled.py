"""Layers are compiled one by one, for batches of any lengths, and nothing else changes."""

from __future__ import annotations

import copy
import functools
import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import distributed as dist
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from seq2sweep.config import Config, with_changes
from seq2sweep.data.batching import Batch
from seq2sweep.data.vocabulary import BOS, PAD
from seq2sweep.errors import UserError
from seq2sweep.model import attention, layers, residual_norm, varlen_attention
from seq2sweep.model.architecture import transformer
from seq2sweep.model.architecture.transformer import Transformer
from seq2sweep.model.building import build
from seq2sweep.train import loop, loss, step
from seq2sweep.train.compiled import compile_layers
from seq2sweep.train.events import Logged, Validated

from ..conftest import Corpus
from ..paper import packed  # noqa: F401  # it has a kernel for CPUs
from ..paper.models import VOCABULARY, padded, small
from ..paper.test_rivals import RIVALS, section

CPU = torch.device("cpu")


@pytest.fixture(params=["padded", "packed"])
def as_on_a_gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Dropout by PyTorch and fused attention, for which a CPU has other ways; of sentences that are
    padded for attention, or stay packed."""
    if request.param == "packed":
        monkeypatch.setattr(varlen_attention, "serves", lambda *_: True)
    for module in (attention, layers, transformer):
        monkeypatch.setattr(module, "dropout", lambda x, share, training: F.dropout(x, share))
    monkeypatch.setattr(attention.MultiHeadAttention, "_fused", lambda self, *_: True)
    torch._dynamo.reset()
    yield request.param
    torch._dynamo.reset()


def batches() -> Iterator[Batch]:
    """Of 2 to 9 sentences of 2 to 40 pieces."""
    random = np.random.default_rng(0)
    while True:
        count = int(random.integers(2, 10))
        source, target_out = (padded(random.integers(2, 41, count).tolist()) for _ in range(2))
        target_in = target_out.roll(1, 1).masked_fill(target_out.eq(PAD), PAD)
        target_in[:, 0] = BOS
        yield Batch(source, target_in, target_out)


def train(model: Transformer, batch: Batch) -> torch.Tensor:
    smoothed, _ = step.accumulate(
        model, [batch], update_target_tokens=100, smoothing=0.1, world_size=1,
        precision="bf16", device=torch.device("cpu"),
    )  # fmt: skip
    model.zero_grad()
    return smoothed


def test_layers_have_one_graph_each_for_batches_of_any_lengths(
    as_on_a_gpu: str, thorough: bool
) -> None:
    torch.manual_seed(1)
    model = Transformer(small(layers=1), VOCABULARY).train()
    seen: list[Any] = []

    def backend(graph: Any, _: Any) -> Any:
        seen.append(graph)
        return graph.forward

    for layer in model.blocks():
        layer.compile(backend=backend, dynamic=True, fullgraph=True)  # raises at a graph break
    for batch in itertools.islice(batches(), 100 if thorough else 40):
        train(model, batch)
    # A layer of the encoder and one of the decoder, and at most two of them compiled once more.
    assert 2 <= len(seen) <= 4
    nodes = [[str(node.target) for node in graph.graph.nodes] for graph in seen]
    kernels = {sum("packed_attention" in target for target in each) for each in nodes}
    assert kernels == ({1, 2} if as_on_a_gpu == "packed" else {0})


@pytest.mark.usefixtures("as_on_a_gpu")
def test_compiled_layers_give_the_same_loss() -> None:
    plain = Transformer(small(layers=1, dropout=0.0), VOCABULARY).train()
    compiled = Transformer(small(layers=1, dropout=0.0), VOCABULARY).train()
    compiled.load_state_dict(plain.state_dict())
    for layer in compiled.blocks():
        layer.compile(backend="eager", dynamic=True)
    for batch in itertools.islice(batches(), 3):
        assert float(train(compiled, batch)) == float(train(plain, batch))


def test_what_is_tried_before_attention_stays_packed_is_in_no_graph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def tried(_: torch.device, dtype: torch.dtype, size: int) -> bool:
        return varlen_attention.largest_error(torch.device("cpu"), dtype, size) < 0.1

    monkeypatch.setattr(varlen_attention, "_is_right", tried)

    @torch.compile(backend="eager", fullgraph=True)
    def compiled(x: torch.Tensor) -> torch.Tensor:
        return x + varlen_attention.serves(torch.device("cuda"), torch.bfloat16, 64)

    torch._dynamo.reset()
    assert float(compiled(torch.zeros(1))) == 1


def test_what_is_tried_before_a_norm_is_in_no_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    def tried(_: torch.device, size: int) -> bool:
        return float(torch.nn.LayerNorm(size)(torch.randn(3, size)).sum()) < 1

    monkeypatch.setattr(residual_norm, "_is_right", tried)
    norm = torch.nn.LayerNorm(24)
    graphs: list[Any] = []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    @torch.compile(backend=backend, fullgraph=True, dynamic=True)
    def compiled(x: torch.Tensor) -> torch.Tensor:
        works = residual_norm._works(torch.device("cuda"), norm.normalized_shape[0])
        return x + works

    torch._dynamo.reset()
    assert float(compiled(torch.zeros(1))) == 1
    assert len([node for node in graphs[0].graph.nodes if node.op == "call_function"]) == 1


# --- as it is on a CPU ---------------------------------------------------------------------------


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Traced as ever, with its gradients, and then run by PyTorch's own operations."""
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager"))
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


def losses_and_gradients(model: Any, count: int, compiled: bool = False) -> list[torch.Tensor]:
    torch.manual_seed(7)
    made, found = [*itertools.islice(batches(), count)], []
    for number, batch in enumerate(made):
        torch.manual_seed(number)
        model.zero_grad()
        smoothed, _ = step.accumulate(
            model, [batch], update_target_tokens=100, smoothing=0.1, world_size=1,
            precision="float32", device=CPU, compiled=compiled,
        )  # fmt: skip
        found += [smoothed, *(parameter.grad for parameter in model.parameters())]
    return [tensor.clone() for tensor in found]


def test_layers_stay_whole_where_workers_exchange_gradients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of more parameters than the first bucket of DistributedDataParallel has, a MiB."""
    seen: list[Any] = []

    def backend(graph: Any, _: Any) -> Any:
        seen.append(graph)
        return graph.forward

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=backend))
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    counts = []
    try:
        for several in (False, True):
            seen.clear()
            model = Transformer(small(layers=1, d_model=64, d_ff=4096), VOCABULARY).train()
            compile_layers(model, CPU)
            losses_and_gradients(DistributedDataParallel(model) if several else model, 1)
            counts.append(len(seen))
    finally:
        dist.destroy_process_group()
        torch._dynamo.reset()
    assert counts[0] == counts[1] >= 2


MIXERS: list[dict[str, Any]] = [
    {"decoder_mixer": mixer, "mixer_neighbourhood": 3, "mixer_kernel": 3}
    for mixer in ("restricted", "recurrent", "convolutional", "separable")
]


def thorough(*changes: dict[str, Any]) -> list[Any]:
    return [pytest.param(each, marks=pytest.mark.thorough) for each in changes]


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize(
    "changes",
    [
        {"feed_forward_dropout": 0.2, "attention_dropout": 0.1},
        *thorough({"attention": "additive", "norm": "pre", "layers": 2}, *MIXERS),
    ],
    ids=str,
)
def test_dropout_draws_what_it_draws_without(changes: dict[str, Any]) -> None:
    config = small(**{"dropout": 0.3, "layers": 1} | changes)
    torch.manual_seed(5)
    plain = Transformer(config, VOCABULARY).train()
    made = Transformer(config, VOCABULARY).train()
    made.load_state_dict(plain.state_dict())
    compile_layers(made, CPU)
    expected, found = (losses_and_gradients(model, 2) for model in (plain, made))
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    counted = torch._dynamo.utils.counters
    assert counted["stats"]["unique_graphs"] >= 2
    # PyTorch's LSTM is not traced: it runs as it is.
    assert bool(counted["graph_break"]) == (changes.get("decoder_mixer") == "recurrent")


@pytest.fixture
def no_block_is_compiled() -> Iterator[None]:
    """Of the loss, before a test and after it: other tests compile in other ways."""
    loss._compiled_block.cache_clear()
    torch._dynamo.reset()
    yield
    loss._compiled_block.cache_clear()
    torch._dynamo.reset()


def losses_by_rows(
    dtype: torch.dtype, smoothing: float, compiled: bool
) -> list[list[torch.Tensor]]:
    """Of 24, 40 and 5 rows, some without a piece: sums, and gradients of states and weights."""
    found = []
    for rows in (24, 40, 5):
        random = torch.Generator().manual_seed(rows)
        states, weight = (
            torch.randn(count, 16, generator=random).to(dtype).requires_grad_()
            for count in (rows, 50)
        )
        target = torch.randint(0, 50, (rows,), generator=random)
        target[::7] = PAD
        sums = loss.projected_cross_entropy(states, weight, target, smoothing, compiled)
        sums[0].backward()
        found.append([*(x.detach() for x in sums), *(x.grad for x in (states, weight))])
    return found


@pytest.mark.usefixtures("no_block_is_compiled")
@pytest.mark.parametrize(
    "backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.thorough)]
)
@pytest.mark.parametrize(
    ("dtype", "smoothing"), [(torch.float32, 0.1), (torch.bfloat16, 0.1), (torch.float32, 0.0)]
)
def test_the_loss_is_compiled_with_the_layers(
    dtype: torch.dtype, smoothing: float, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In blocks of eight rows, the last of which has fewer."""
    monkeypatch.setattr(loss, "logits_at_once", lambda *_: 17 * 50)
    monkeypatch.setitem(loss.BLOCK, True, 8 * 50)
    plain = losses_by_rows(dtype, smoothing, compiled=False)
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=backend))
    torch._dynamo.utils.counters.clear()
    made = losses_by_rows(dtype, smoothing, compiled=True)
    close = {"rtol": 1e-5, "atol": 1e-6} if dtype == torch.float32 else {"rtol": 1e-2, "atol": 1e-2}
    for ours, theirs in zip(itertools.chain(*made), itertools.chain(*plain), strict=True):
        torch.testing.assert_close(ours, theirs, **close)
    counted = torch._dynamo.utils.counters
    assert not counted["graph_break"]
    # One for several rows, and one for a single row.
    assert 1 <= counted["stats"]["unique_graphs"] <= 2


@pytest.mark.usefixtures("traced", "no_block_is_compiled")
def test_an_update_compiles_its_loss_where_that_is_asked_for() -> None:
    model = Transformer(small(layers=1), VOCABULARY).train()
    losses_and_gradients(model, 1)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 0
    losses_and_gradients(model, 1, compiled=True)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


@pytest.mark.thorough
@pytest.mark.usefixtures("traced")
@RIVALS
def test_rivals_may_be_compiled(changes: dict[str, Any]) -> None:
    torch.manual_seed(5)
    plain = build(section(changes | {"dropout": 0.3}), VOCABULARY).train()
    made = copy.deepcopy(plain)
    compile_layers(made, CPU)
    expected, found = (losses_and_gradients(model, 2) for model in (plain, made))
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("compiled", [False, True])
def test_the_setting_reaches_layers_and_loss(
    compiled: bool, tiny_corpus: Corpus, tiny_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers, losses = [], []

    def accumulate(*arguments: Any, **options: Any) -> Any:
        losses.append(options.pop("compiled"))
        return step.accumulate(*arguments, **options)

    monkeypatch.setattr(loop, "compile_layers", lambda *arguments: layers.append(arguments))
    monkeypatch.setattr(loop, "accumulate", accumulate)
    changes = {"train.steps": 2, "train.compile": compiled}
    for _ in loop.train(with_changes(tiny_config, changes), tiny_corpus.encoded, device=CPU):
        pass
    assert (len(layers), losses) == (compiled, [compiled] * 2)


@pytest.mark.usefixtures("no_block_is_compiled")
def test_all_blocks_of_a_rival_are_compiled(
    tiny_corpus: Corpus, tiny_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where they differ in more ways than PyTorch keeps by itself."""
    monkeypatch.setattr(torch._dynamo.config, "recompile_limit", 2)
    ran, blocks = [], []

    def backend(graph: Any, _: Any) -> Any:
        def run(*inputs: Any) -> Any:
            ran.append(graph)
            return graph.forward(*inputs)

        return run

    def compile_all(model: Any, _: torch.device) -> None:
        torch._dynamo.reset()
        for block in model.blocks():
            blocks.append(block)
            block.register_forward_pre_hook(lambda *_: called.append(1) if model.training else None)
            block.compile(backend=backend, dynamic=True)

    called: list[int] = []
    monkeypatch.setattr(loop, "compile_layers", compile_all)
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    changes = {"model.architecture": "bytenet", "model.layers": 2, "model.dilations": [1, 2]}
    config = with_changes(tiny_config, changes | {"train.compile": True, "train.steps": 1})
    for _ in loop.train(config, tiny_corpus.encoded, device=CPU):
        pass
    assert len(blocks) == 4
    assert len(ran) == len(called) > 0


@pytest.mark.thorough
@pytest.mark.usefixtures("no_block_is_compiled")
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ to compile with")
def test_a_training_is_the_same_up_to_rounding(tiny_corpus: Corpus, tiny_config: Config) -> None:
    shared = {"train.steps": 4, "train.validate_every": 2, "train.checkpoint_every": 4}
    found = []
    for compiled in (False, True):
        changes = shared | {"train.compile": compiled, "train.log_every": 1}
        config = with_changes(tiny_config, changes)
        events = list(loop.train(config, tiny_corpus.encoded, device=CPU))
        metrics = [event.metrics for event in events if isinstance(event, Logged | Validated)]
        found.append([each.get("loss", each.get("valid_loss")) for each in metrics])
        assert loss._compiled_block.cache_info().currsize == compiled
    assert found[1] == pytest.approx(found[0], rel=1e-5)


def test_without_a_compiler_it_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("InvalidCxxCompiler: No working C++ compiler found\n\n  at length")

    monkeypatch.setattr(torch, "compile", lambda _: fails)
    with pytest.raises(UserError) as told:
        compile_layers(Transformer(small(), VOCABULARY), CPU)
    assert str(told.value) == (
        "train.compile: torch.compile fails on cpu (InvalidCxxCompiler: No working C++ compiler "
        "found): install a C++ compiler, such as g++, and for a GPU Triton; or set train.compile "
        "to false"
    )


@pytest.mark.parametrize("other", ["train.deterministic", "cluster.fsdp"])
def test_it_does_not_go_with(other: str, tiny_config: Config) -> None:
    with pytest.raises(UserError, match=f"train.compile must be false with {other}, not True"):
        with_changes(tiny_config, {"train.compile": True, other: True})
