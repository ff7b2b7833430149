"""Passes as CUDA graphs, with graphs that run what was recorded on a CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from seq2sweep import presets
from seq2sweep.data.batching import Batch
from seq2sweep.data.vocabulary import BOS, PAD
from seq2sweep.model import components
from seq2sweep.model.architecture.transformer import Transformer
from seq2sweep.train import step
from seq2sweep.train.step import Passes, Staged
from seq2sweep.train.updates import filled, repeats_itself

from ..paper.models import VOCABULARY, padded, small
from ..paper.packed import packed_attention

CPU = torch.device("cpu")
ROOM = 40


class Graph:
    """Of CUDA: what is recorded within `recording` is computed at each `replay`."""

    def __init__(self) -> None:
        self.recorded: list[tuple[Any, ...]] = []
        self.replays = 0

    def replay(self) -> None:
        self.replays += 1
        for (model, batch, *rest), out in self.recorded:
            # Offsets are made of the numbers within the graph too.
            out.copy_(COMPUTED(model, batch.over(batch.numbers), *rest))

    def pool(self) -> str:
        return "memory of graphs"


COMPUTED = step.one_pass
STREAMS: list[str] = []
"""In which this thread is."""


@contextmanager
def stream(which: str) -> Iterator[None]:
    STREAMS.append(which)
    try:
        yield
    finally:
        del STREAMS[STREAMS.index(which) :]


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Graph]]:
    """The graphs that are made; a pass within one changes no gradient, as in a recording."""
    made: list[Graph] = []
    current: list[Graph] = []

    @contextmanager
    def recording(graph: Graph, pool: Any, capture_error_mode: str) -> Iterator[None]:
        assert pool == (None if not made else graph.pool())
        assert capture_error_mode == "thread_local"
        current.append(graph)
        yield
        made.append(current.pop())

    def one_pass(model: Any, *rest: Any) -> torch.Tensor:
        before = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
        out = COMPUTED(model, *rest)
        if current:
            assert modes[-1] == "error"  # what would wait says so before it does
            current[-1].recorded.append(((model, *rest), out))
            for parameter, gradient in zip(model.parameters(), before, strict=True):
                assert parameter.grad is not None
                assert gradient is not None
                parameter.grad.copy_(gradient)
        return out

    modes: list[Any] = [0]
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: modes[-1])
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: "before")
    monkeypatch.setattr(torch.cuda, "stream", stream)
    monkeypatch.setattr(torch.cuda, "graph", recording)
    monkeypatch.setattr(step, "one_pass", one_pass)
    monkeypatch.setattr(Passes, "_has_room", lambda _: True)
    with packed_attention():
        yield made
    assert modes[-1] == 0


def staged(lengths: list[int], seed: int) -> Staged:
    """Of sentences of such lengths on both sides, in tokens of multiples of 8."""
    torch.manual_seed(seed)
    source, target = padded(lengths), padded(lengths[::-1])
    target_in = target.roll(1, 1).masked_fill(target.eq(PAD), PAD)
    target_in[:, 0] = BOS
    return Staged.of(filled(Batch(source, target_in, target), 8), CPU, ROOM)


def model() -> Transformer:
    torch.manual_seed(1)
    return Transformer(small(layers=1, dropout=0.0), VOCABULARY).train()


# Two shapes: 16 and 24 tokens a side.
UPDATES = [
    [[5, 8]],
    [[7, 7]],
    [[9, 2], [20, 3]],
    [[4, 6], [3, 19], [1, 11]],
    [[8, 8], [12, 12]],
    [[2, 2, 10], [24]],
]


def trained(passes: Passes | None, network: Transformer) -> list[torch.Tensor]:
    """Sums and gradients of each update."""
    found: list[torch.Tensor] = []
    for number, update in enumerate(UPDATES):
        batches = [staged(each, 10 * number + i) for i, each in enumerate(update)]
        sums = step.accumulate(
            network,
            batches,
            update_target_tokens=10 + number,
            smoothing=0.1,
            world_size=1,
            precision="float32",
            device=CPU,
            graphs=passes,
        )
        assert all(p.grad is not None for p in network.parameters())
        found += [each.clone() for each in sums]
        found += [p.grad.clone() for p in network.parameters() if p.grad is not None]
        network.zero_grad(set_to_none=True)  # as `step.apply` does
    return found


def test_graphs_compute_what_passes_do(graphs: list[Graph]) -> None:
    network = model()
    expected = trained(None, network)
    passes = Passes(network, 0.1, "float32", CPU)
    found = trained(passes, network)
    assert len(found) == len(expected) > 20
    for mine, other in zip(found, expected, strict=True):
        assert torch.equal(mine, other)
    # Of eleven passes the first of each shape is no graph.
    shapes = {staged(each, 0).shape for update in UPDATES for each in update}
    assert len(shapes) == len(graphs) == len(passes.graphs) == 2
    assert sum(graph.replays for graph in graphs) == 11 - 2


def test_graphs_are_so_many_at_most(graphs: list[Graph], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "MOST_GRAPHS", 1)
    network = model()
    expected = trained(None, network)
    for mine, other in zip(
        trained(Passes(network, 0.1, "float32", CPU), network), expected, strict=True
    ):
        assert torch.equal(mine, other)
    assert len(graphs) == 1


def test_gradients_stay_where_they_are(graphs: list[Graph]) -> None:
    network = model()
    passes = Passes(network, 0.1, "float32", CPU)
    trained(passes, network)
    places = {id(p): g.data_ptr() for p, g in passes.held}
    assert len(places) == len([*network.parameters()])
    assert all((g.data_ptr() - passes.gradients.data_ptr()) % 256 == 0 for _, g in passes.held)
    trained(passes, network)
    assert {id(p): g.data_ptr() for p, g in passes.held} == places
    assert graphs


def test_tables_that_a_graph_reads_are_kept(graphs: list[Graph]) -> None:
    network = model()
    passes = Passes(network, 0.1, "float32", CPU)
    trained(passes, network)
    (kept, *_) = [each[3] for each in passes.graphs.values()]
    table = network.source_positions.table
    assert any(each is table for each in kept)
    network.source_positions(0, 400)  # a longer sentence takes a larger one
    assert network.source_positions.table is not table
    assert any(each is table for each in kept)
    assert graphs


def test_without_room_for_both_there_are_no_graphs(
    graphs: list[Graph], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    network = model()
    expected = trained(None, network)
    monkeypatch.setattr(Passes, "_has_room", lambda _: False)
    passes = Passes(network, 0.1, "float32", CPU)
    for mine, other in zip(trained(passes, network), expected, strict=True):
        assert torch.equal(mine, other)
    assert not graphs
    said = "".join(capsys.readouterr())
    assert said.count("memory is short: passes are started kernel by kernel") == 1


@pytest.mark.parametrize(
    ("peak", "free", "room"), [(110, 200, False), (110, 201, True), (60, 101, True)]
)
def test_room_is_for_the_largest_pass_twice(
    peak: int, free: int, room: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: peak)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 10)
    monkeypatch.setattr(step.hardware, "free_bytes", lambda *_: float(free) + step.SPARE)
    passes = Passes(model(), 0.1, "float32", CPU)
    assert passes._has_room() == room
    # Where there are some, for what CUDA itself takes.
    passes.graphs[1,] = None  # type: ignore[assignment]
    for left in (step.SPARE, step.SPARE + 1):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _, left=left: (left, 10 * left))
        assert passes._has_room() == (left > step.SPARE)


def test_what_one_pass_does_not_use_another_may() -> None:
    """Gradients of all parameters have their place, on all workers the same."""
    network = model()
    network.spare = torch.nn.Linear(3, 2)
    passes = Passes(network, 0.1, "float32", CPU)
    passes.works = False
    with packed_attention():
        trained(passes, network)
    assert [p for p, _ in passes.held] == [*network.parameters()]


def test_only_kinds_that_say_so_may_be_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a user's own nobody knows whether it starts the same kernels each time."""
    assert repeats_itself(small())
    assert repeats_itself(small(feed_forward="swiglu", norm_kind="rmsnorm"))
    assert not repeats_itself(presets.load("phrasebook-bytenet").config.model)
    for part in ("feed_forward", "norm"):
        with monkeypatch.context() as patch:
            patch.setattr(components, part, lambda _: torch.nn.Identity)
            assert not repeats_itself(small())


def test_what_cannot_be_recorded_is_computed(
    graphs: list[Graph], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def refusing(*_: Any, **__: Any) -> Iterator[None]:
        STREAMS.append("of the recording")  # and PyTorch stays there
        yield
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    network = model()
    expected = trained(None, network)
    monkeypatch.setattr(torch.cuda, "graph", refusing)
    passes = Passes(network, 0.1, "float32", CPU)
    for mine, other in zip(trained(passes, network), expected, strict=True):
        assert torch.equal(mine, other)
    said = "".join(capsys.readouterr())
    assert said.count("(operation not permitted when stream is capturing): training is slow") == 1
    assert not passes.graphs
    assert not graphs
    assert not STREAMS


# --- batches without padding ---------------------------------------------------------------------


def test_pieces_alone_are_those_of_the_padded_batch() -> None:
    batch = Batch(padded([5, 3, 9]), padded([2, 8, 4]), padded([2, 8, 4]))
    plain, packed = Staged.of(batch, CPU), Staged.of(batch, CPU, ROOM)
    for name, side in (("source", 0), ("target_in", 1)):
        wide = getattr(plain, name)
        assert getattr(packed, name).tolist() == wide[wide.ne(PAD)].tolist()
        before, after = plain.packings[side], packed.packings[side]
        assert after.columns().tolist() == before.columns().tolist()
        sentence = after.places // after.width
        assert sentence.tolist() == (before.places // before.width).tolist()
        assert (after.sentences, after.width) == (ROOM, 256)
        assert after.lengths() == before.lengths() + [0] * (ROOM - 3)
    assert packed.target.tolist() == plain.target.tolist()
    assert packed.shape == (17, 14, 14, ROOM, 256, 256)
    moved = packed.over(packed.numbers.clone())
    assert moved.shape == packed.shape
    assert moved.packings[1].offsets.tolist() == packed.packings[1].offsets.tolist()  # type: ignore[union-attr]


@pytest.mark.parametrize(("longest", "width"), [(256, 256), (257, 512), (900, 1024)])
def test_widths_are_few(longest: int, width: int) -> None:
    batch = Batch(padded([longest]), padded([3]), padded([3]))
    assert [p.width for p in Staged.of(batch, CPU, ROOM).packings] == [width, 256]
