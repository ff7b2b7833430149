"""How long a device takes: FLOPs a second, of a recorded run or assumed, and what follows.

Every constant here is stated, not measured on the devices at hand; `how` says so to the reader.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch

from seq2sweep.config import Config, TransformerConfig
from seq2sweep.hardware import Precision
from seq2sweep.model import flops
from seq2sweep.model.products import linear
from seq2sweep.planning import exchange, roofline
from seq2sweep.planning.recorded_runs import Run
from seq2sweep.planning.roofline import Prediction, Rates, Share
from seq2sweep.planning.workload import Lengths, Training, Workload
from seq2sweep.train.footprint import share_of
from seq2sweep.train.updates import records_passes

LAUNCH_SECONDS = 1e-3
"""Least time of a layer in a pass, forward and back, on a GPU: some dozens of kernels, started one
by one. It is what small updates take, as those of base on eight fast GPUs."""
DECODING_STEP = 3e-3
"""The same of a step of beam search, beside the layers' share of a third."""
DECODING_SHARE = 0.5
"""Of the rate of training, in decoding: its products are smaller."""
COPY_BYTES_PER_SECOND = 1.4e9
"""Of weights and moments for a checkpoint, for which training waits (docs/performance.md)."""
SCORING_SECONDS = 3e-3
"""Of a sentence, BLEU and its bootstrap."""
START_SECONDS = {
    "download": 3.0,
    "prepare": 3.0,
    "vocabulary": 3.0,
    "encode": 3.0,
    "train": 25.0,
    "evaluate": 10.0,
    "teacher": 2.0,
    "silver": 2.0,
    "student": 2.0,
    "sweep": 22.0,
    "table1": 4.0,
    "attention": 8.0,
    "report": 5.0,
}
"""Of a stage, its end and DVC's part included: Python, torch, Ray and its workers, MLflow; on 2
cores of 2.6 GHz."""

IDLE_SWEEP_SECONDS = 4.0
"""Of the stage sweep where it trains nothing: Python and torch alone."""

EXACT, ABOUT = (1.0, 1.0), (0.5, 2.0)
"""How many times as long it may take, at least and at most."""
OVER_ROOFLINE = 3.0
"""The most of a roofline: the paper's own runs on 8 P100 took two to three times what it says of
them (docs/plan.md)."""

ALIKE = 1.1
"""How much the FLOPs a token of two models may differ that count as the same."""
NEAR = 3.0
"""The same of two models one of which says something of the other: the rate grows with width."""
PRODUCT_SECONDS = 0.1
PRODUCT_WIDTH = 256
BESIDE_PRODUCTS = 1.2e-9
"""Seconds x d_model: what else an update does on a CPU, for each FLOP of its products. The wider
the model, the less. Of updates in float32 and bf16 at d_model 64 to 256 on an EPYC."""


@dataclass(frozen=True)
class Speed:
    """FLOPs a second of a training, all its workers together.

    how: where the rate is from; detail: more of it, in lines. launch: seconds of a layer's pass
    that are not gone below. span: how many times as long it may take, EXACT for a run of this
    kind of model, size, workers and tokens an update. gpu: whether it is of GPUs.
    """

    flops_per_second: float
    how: str
    launch: float = 0.0
    span: tuple[float, float] = ABOUT
    detail: tuple[str, ...] = ()
    gpu: bool = False

    @property
    def about(self) -> bool:
        """Whether it is no more than about right."""
        return self.span != EXACT


@dataclass(frozen=True)
class Part:
    """A line of a stage's time; None: not known. span: how many times as long it may take."""

    part: str
    seconds: float | None
    how: str
    span: tuple[float, float] = EXACT


def bounds(parts: Iterable[Part]) -> tuple[float, float]:
    """Seconds that parts, all of them known, take together, at least and at most."""
    known = [(part.seconds or 0.0, *part.span) for part in parts]
    return sum(s * low for s, low, _ in known), sum(s * high for s, _, high in known)


# --- rates ---------------------------------------------------------------------------------------


def recorded(
    runs: Sequence[Run],
    device: str,
    precision: Precision,
    wanted: Training,
    workers: int,
    each: float,
    predicted: Callable[[int, float, float], Speed | None] = lambda workers, each, times: None,
) -> Speed | None:
    """As the nearest of the runs had it: one of the same kind first (`workload.KIND`), then the
    same model, then the same workers and tokens an update, the newest.

    workers, each: as many workers, each of so many CPUs or GPUs. predicted: by a roofline, of such
    with so many times the tokens an update. None where no model is near.
    """

    def ratio(run: Run) -> float:
        return run.flops_per_token / wanted.flops_per_token

    def times(run: Run) -> float:
        """The tokens of its updates; 1 where these are about as many."""
        found = run.tokens_per_update / wanted.tokens_per_update
        return found if max(found, 1 / found) > ALIKE else 1.0

    def has_others(run: Run) -> bool:
        return (run.workers, run.each) != (workers, each)

    def unlike(run: Run) -> list[str]:
        return [key for key, value in run.kind.items() if wanted.kind.get(key, value) != value]

    def order(run: Run) -> tuple[bool, float, int, float]:
        far = max(ratio(run), 1 / ratio(run))
        others = has_others(run) + (times(run) != 1.0)
        return unlike(run) != [], far if far > ALIKE else 1.0, others, -run.ended

    near = [
        run
        for run in runs
        if (run.device, run.precision) == (device, precision) and 1 / NEAR < ratio(run) < NEAR
    ]
    if not near:
        return None
    run = min(near, key=order)
    other_kind, far, others, _ = order(run)
    how = f"from the run of {time.strftime('%Y-%m-%d', time.gmtime(run.ended))} on such "
    how += "CPUs" if device == "CPU" else "GPUs"
    if has_others(run):
        how += f" with {run.workers} worker(s)" + f" of {run.each} thread(s)" * (device == "CPU")
    if times(run) != 1.0:
        how += f", whose updates have {run.tokens_per_update:,.0f} tokens of both sides"
    if other_kind:
        how += f", whose {' and '.join(f'{key} is {run.kind[key]}' for key in unlike(run))}"
    if far > 1:
        how += f", whose model takes {ratio(run):.1f} x the FLOPs a token"
    rate = run.flops_per_second / run.each * workers * each
    launch = 0.0 if device == "CPU" else LAUNCH_SECONDS
    here, there = predicted(workers, each, 1.0), predicted(run.workers, run.each, times(run))
    if here and there:
        ratio_of_rates = here.flops_per_second / there.flops_per_second
        scaled = run.flops_per_second * run.workers * ratio_of_rates
        # A CPU that starts kernels faster than is assumed makes no GPU faster that waits for none.
        rate, launch = min(scaled, max(rate, here.flops_per_second)), 0.0
        how += ", scaled by a roofline" * (others > 0)
    span = ABOUT if other_kind or far > 1 or others else EXACT
    return Speed(rate, how, launch, span, gpu=device != "CPU")


def predicted(
    config: Config, found: Training, size: int, rates: Rates, precision: Precision, workers: int
) -> Speed:
    """By a roofline of the model itself, of so many GPUs. size: of the vocabulary."""
    fsdp, share = config.cluster.fsdp, _share(config, found, workers)
    update = update_of(config, found, size, rates, precision, workers)
    detail = _of_one(update, rates, share)
    if workers > 1:
        what = f"{4e-6 * found.parameters:,.0f} MB of gradients"
        detail.append(_of_exchange(update, rates, what + ", and of weights" * fsdp, workers))
    rate = found.flops_per_update / update.seconds
    reached = share.flops / update.seconds * roofline.PRODUCT_SHARE[precision] / rates.product
    how = f"predicted by a roofline of the model, {100 * reached:.2g}% of the peak"
    # At least what the GPU takes, however fast its CPU may be.
    span = (update.busy + update.exchange) / update.seconds, OVER_ROOFLINE
    return Speed(rate, how, span=span, detail=tuple(detail), gpu=True)


def update_of(
    config: Config, found: Training, size: int, rates: Rates, precision: Precision, workers: int
) -> Prediction:
    """What a roofline says of an update of so many GPUs. size: of the vocabulary."""
    model, share = config.model, _share(config, found, workers)
    assert isinstance(model, TransformerConfig)
    fsdp, repeats = config.cluster.fsdp, records_passes(config)
    return roofline.predicted(model, size, share, rates, precision, workers, fsdp, repeats)


def _share(config: Config, found: Training, workers: int) -> Share:
    tokens = found.source_tokens_per_update, found.target_tokens_per_update
    per_update, per_pass = config.train.tokens_per_update, config.train.pass_tokens
    if per_pass >= share_of(config, workers, found.longest):
        per_pass = per_update  # no share is cut
    return Share.of(tokens, found.flops_per_update, per_update, per_pass, workers)


def _of_one(update: Prediction, rates: Rates, share: Share) -> list[str]:
    """What the GPU takes, and the CPU that starts its kernels."""
    starting = roofline.LAUNCH * update.kernels
    longer = "the longer of the two" if starting > update.busy else "hidden"
    cpu = (
        f"its CPU: {1000 * starting:.1f} ms to start {update.kernels:,} kernels, {longer}; "
        f"{1e6 * roofline.LAUNCH:.0f} us each, assumed"
        if update.started
        else f"its {update.kernels:,} kernels are started together, as CUDA graphs"
    )
    passes = "1 pass" if share.passes == 1 else f"{share.passes} passes"
    return [
        f"each GPU, in {passes}: {1000 * update.products:.1f} ms of products at "
        f"{rates.product / 1e12:,.0f} TFLOP/s, {1000 * update.memory:.1f} ms of memory at "
        f"{rates.bandwidth / 1e12:.1f} TB/s",
        cpu,
    ]


def _of_exchange(update: Prediction, rates: Rates, what: str, workers: int) -> str:
    """What is sent at which rates, and for how long the GPU waits for it."""
    machines, links = -(-workers // exchange.MACHINE), rates.links
    between = f" and {8 * links.network / 1e9:,.0f} Gbit/s between {machines} machines"
    return (
        f"exchange of {what}: {1000 * update.exchange:.1f} ms that computing does not hide, at "
        f"{links.inside / 1e9:,.0f} GB/s in a machine{between * (machines > 1)}, "
        f"{roofline.LINK_SHARE:.0%} of the links' rates, assumed"
    )


def assumed_of_cpus(precision: Precision, d_model: int, cpus: float) -> Speed:
    """Of so many CPUs like those here, by what one of them reaches in matrix products."""
    product = _product_rate(precision)
    one = 1 / (1 / product + BESIDE_PRODUCTS / d_model)
    how = (
        f"assumed: {100 * one / product:.0f} % of the {product / 1e9:,.0f} GFLOP/s that a CPU here "
        f"reaches in matrix products, tried for {PRODUCT_SECONDS:g} s"
    )
    return Speed(cpus * one, how)


@functools.cache
def _product_rate(precision: Precision) -> float:
    """FLOPs a second of one thread in products of square matrices, in CPU time, at its best."""
    numbers = torch.ones(PRODUCT_WIDTH, PRODUCT_WIDTH)
    if precision == "bf16":
        numbers = numbers.bfloat16()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        shortest = math.inf
        until = time.perf_counter() + PRODUCT_SECONDS
        while shortest == math.inf or time.perf_counter() < until:
            began = time.thread_time()
            linear(numbers, numbers)
            shortest = min(shortest, time.thread_time() - began)
    finally:
        torch.set_num_threads(threads)
    return 2 * PRODUCT_WIDTH**3 / shortest


# --- times ---------------------------------------------------------------------------------------


def update_seconds(
    config: Config, found: Training, speed: Speed, workers: int
) -> tuple[float, bool]:
    """Of one update, shared by so many workers, and whether starting kernels takes the longest."""
    computing = found.flops_per_update / speed.flops_per_second
    passes = _share(config, found, workers).passes
    # Where a run has shown the whole it is in the rate.
    launching = passes * 2 * config.model.layers * speed.launch * speed.about
    return max(computing, launching), launching >= computing


def training_parts(config: Config, found: Training, speed: Speed, workers: int) -> list[Part]:
    """Updates, validation and checkpoints of one training."""
    update, launching = update_seconds(config, found, speed, workers)
    copied = 4 * (1 + config.moments) * found.parameters * found.checkpoints
    digits = 1 if update < 0.1 else 0
    shown = f"{1000 * update:,.{digits}f} ms" if update < 10 else f"{update:,.0f} s"
    how = f"{found.steps:,} of {shown}"
    if launching:
        how += f", by the kernels to start: {1000 * speed.launch:g} ms a layer, assumed"
    validation = found.validation_flops / speed.flops_per_second
    return [
        Part("updates", found.steps * update, how, speed.span),
        Part("validation", validation, "at the same rate", speed.span),
        Part(
            "checkpoints",
            copied / COPY_BYTES_PER_SECOND,
            f"{found.checkpoints} copies at {COPY_BYTES_PER_SECOND / 1e9:g} GB/s, stated",
        ),
    ]


def decoding_seconds(
    config: Config, load: Workload, lengths: tuple[Lengths, Lengths], speed: Speed
) -> float:
    """Of beam search over a test set, whose translations are as long as the references.

    Every hypothesis is one pass of the decoder; the encoder's pass, once a sentence, is counted
    with each of them, which is little beside the projection to the vocabulary.
    """
    source, target = lengths
    evaluate = config.evaluate
    computed = evaluate.beam * flops.forward_flops(config.model, load.vocabulary_size, *lengths)
    batches = -(-int(source.sum()) * evaluate.beam // evaluate.tokens_per_batch)
    # Sentences of a batch are alike in length, so their mean is about its number of steps.
    steps = batches * float(target.mean())
    waiting = steps * (config.model.layers * LAUNCH_SECONDS / 3 + DECODING_STEP)
    decoding = computed / (DECODING_SHARE * speed.flops_per_second)
    return max(decoding, waiting) if speed.gpu else decoding


def scored_seconds(
    config: Config, load: Workload, lengths: tuple[Lengths, Lengths], speed: Speed
) -> float:
    """The same, and of the scores of what it finds."""
    return decoding_seconds(config, load, lengths, speed) + SCORING_SECONDS * len(lengths[0])
