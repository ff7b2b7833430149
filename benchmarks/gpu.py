"""All that is to be known of one GPU, in a call of under eight minutes: `python -m benchmarks.gpu`.

Needs torch, numpy, pyyaml, safetensors, sentencepiece and this project's sources, no Ray. Trains by
the core's own update on made-up pieces in sentences of WMT14's lengths, updates of 25 000 tokens a
side, vocabulary 37 000, bf16: base and big for longer, rows A and B of Table 3 for some updates
each. States real target tokens/s, the share of the peak (MFU), peak memory, and where the time of
an update of base goes; then base compiled (torch.compile, its own time stated), then beam search
with beam 4. Prints a table, and all figures as JSON.

On a CPU (`--device cpu --tiny`) it shows that it works, and nothing else.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seq2sweep import config as configuration
from seq2sweep import hardware, presets
from seq2sweep.config import Config
from seq2sweep.data.batching import collate, passes, plan_epoch
from seq2sweep.data.bitext import Bitext, Side
from seq2sweep.data.vocabulary import EOS, PAD
from seq2sweep.decode.beam import search
from seq2sweep.model.architecture.transformer import Transformer
from seq2sweep.model.building import build
from seq2sweep.model.flops import parameter_count, training_flops
from seq2sweep.train import optimizers, step

VOCABULARY = 37_000
PAIRS = 120_000
TOKENS = 25_000
WARM_UP = 5
ROWS = {
    f"{row}: {key}": changes
    for row, changed in (
        ("A", [{"heads": h, "d_k": 512 // h, "d_v": 512 // h} for h in (1, 4, 16, 32)]),
        ("B", [{"d_k": 16}, {"d_k": 32}]),
    )
    for changes in changed
    for key in [", ".join(f"{k} {v}" for k, v in changes.items())]
}
TINY = {"layers": 1, "d_model": 64, "d_ff": 128, "heads": 2, "d_k": 32, "d_v": 32}


def main() -> None:
    """Measure all of it; a part that fails is stated, and the others go on."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="tiny models, to see that it works")
    parser.add_argument("--seconds", type=float, default=420.0, help="for all of it, about")
    parser.add_argument("--json", type=Path, help="where to write the figures as well")
    options = parser.parse_args()
    device = torch.device(options.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        parser.error("no GPU is to be seen here; --device cpu --tiny tries the script")
    base, data = presets.load("wmt14-en-de-base").config, made_up(options.tiny)
    big = presets.load("wmt14-en-de-big").config
    precision = step.choose_precision("auto", device, base.model.d_model)
    name = hardware.device_name(device)
    result: dict[str, Any] = {
        "device": name,
        "torch": torch.__version__,
        "precision": precision,
        "peak_flops_per_second": hardware.peak_flops(name, precision),
    }

    def small(config: Config, changes: dict[str, Any]) -> Config:
        changes = changes | (TINY if options.tiny else {})
        return configuration.with_changes(config, {f"model.{k}": v for k, v in changes.items()})

    share = options.seconds / 7
    parts: dict[str, Callable[[], Any]] = {
        "base": lambda: training(small(base, {}), data, device, share),
        "big": lambda: training(small(big, {}), data, device, share),
        "profile of base": lambda: profile(small(base, {}), data, device),
        "decoding of base": lambda: decoding(small(base, {}), device, share),
        "base, compiled": lambda: training(small(base, {}), data, device, share, compiled=True),
    } | {
        row: lambda changes=changes: training(small(base, changes), data, device, share / 4)
        for row, changes in ROWS.items()
    }
    began = time.perf_counter()
    for part, measure in parts.items():
        if time.perf_counter() - began > options.seconds:
            result[part] = "not measured: no time was left"
            continue
        try:
            result[part] = measure()
        except (RuntimeError, ValueError) as error:
            result[part] = f"failed: {str(error).splitlines()[0]}"
        print(f"{part}: {json.dumps(result[part])}", flush=True)
        if device.type == "cuda":
            torch.cuda.empty_cache()
    result["seconds"] = time.perf_counter() - began
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


def made_up(tiny: bool) -> Bitext:
    """Random pieces in sentences of about WMT14's lengths: 28 and 29 pieces, alike in a pair."""
    random = np.random.default_rng(0)
    pairs = PAIRS // 100 if tiny else PAIRS
    drawn = np.clip(random.gamma(2.5, 11.2, pairs), 2, 250)
    other = np.clip(drawn * random.normal(1.04, 0.2, pairs), 2, 250)
    size = 500 if tiny else VOCABULARY
    sides = []
    for lengths in (drawn.astype(np.int32), other.astype(np.int32)):
        offsets = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
        pieces = random.integers(PAD + 1, size, int(offsets[-1]), dtype=np.int64)
        sides.append(Side(pieces, offsets, lengths))
    return Bitext({"vocabulary": {"size": size}}, *sides)


def updates_of(config: Config, data: Bitext, tokens: int) -> Iterator[tuple[list[Any], Any]]:
    """Batches of each update, as training makes them, for ever; and the ids of its pairs."""
    lengths = data.source_lengths, data.target_lengths
    epoch = 0
    while True:
        plan = plan_epoch(*lengths, tokens_per_update=tokens, seed=1, epoch=epoch)
        for i in range(len(plan)):
            ids = plan[i]
            chunks = passes(ids, *lengths, config.train.tokens_per_pass)
            yield [collate(data, chunk) for chunk in chunks], ids
        epoch += 1


def training(
    config: Config, data: Bitext, device: torch.device, seconds: float, compiled: bool = False
) -> dict[str, Any]:
    """Rate, utilisation and memory of the core's update, for so many seconds."""
    size = int(data.header["vocabulary"]["size"])
    torch.manual_seed(1)
    model = build(config.model, size).to(device).train()
    optimizer = optimizers.make_adam(model)
    precision = step.choose_precision("auto", device, config.model.d_model)
    callable_model = torch.compile(model, dynamic=True) if compiled else model
    tokens = TOKENS if device.type == "cuda" else 500
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    began = time.perf_counter()
    taken, flops, pieces, first = [], 0.0, 0, 0.0
    for number, (batches, ids) in enumerate(updates_of(config, data, tokens)):
        lengths = data.source_lengths[ids], data.target_lengths[ids]
        before = _now(device)
        step.accumulate(
            callable_model,  # type: ignore[arg-type]
            batches,
            update_target_tokens=int(lengths[1].sum()),
            smoothing=config.train.label_smoothing,
            world_size=1,
            precision=precision,
            device=device,
        )
        step.apply(model, optimizer, 1e-4)
        spent = _now(device) - before
        first = first or spent
        if number >= WARM_UP:
            taken.append(spent)
            flops += training_flops(config.model, size, *lengths)
            pieces += int(lengths[1].sum())
        if len(taken) >= 5 and time.perf_counter() - began > seconds:
            break
    peak = hardware.peak_flops(hardware.device_name(device), precision)
    rate = flops / sum(taken)
    return {
        "parameters": parameter_count(config.model, size),
        "target_tokens_per_second": pieces / sum(taken),
        "seconds_of_an_update": statistics.median(taken),
        "first_update_seconds": first,
        "updates": len(taken),
        "flops_per_second": rate,
        "mfu": rate / peak if peak else None,
        "peak_gigabytes": torch.cuda.max_memory_allocated(device) / 1e9
        if device.type == "cuda"
        else None,
    }


def profile(config: Config, data: Bitext, device: torch.device) -> list[str]:
    """Where the time of an update goes: the kernels that take most of it."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    training(config, data, device, 1.0)
    with torch.profiler.profile(activities=activities) as profiler:
        training(config, data, device, 1.0)
    by = "self_device_time_total" if device.type == "cuda" else "self_cpu_time_total"
    events = sorted(profiler.key_averages(), key=lambda event: -getattr(event, by))
    total = sum(getattr(event, by) for event in events) or 1.0
    return [f"{getattr(e, by) / total:.1%} {e.key[:80]} x {e.count}" for e in events[:20]]


def decoding(config: Config, device: torch.device, seconds: float) -> dict[str, Any]:
    """Output pieces a second of beam search, beam 4, 28 pieces in and about 30 out."""
    torch.manual_seed(1)
    size = 500 if config.model.d_model == TINY["d_model"] else VOCABULARY
    model = build(config.model, size).to(device).eval()
    assert isinstance(model, Transformer)
    with torch.no_grad():
        model.projection.weight[EOS] = 0  # hardly ever the end: cut at the longest
    if device.type == "cuda":
        model = model.to(torch.bfloat16)
    sentences = 256 if device.type == "cuda" else 8
    source = torch.randint(4, size, (sentences, 28), device=device)
    source[:, -1] = EOS
    rates: list[float] = []
    began = time.perf_counter()
    while len(rates) < 3 or (time.perf_counter() - began < seconds and len(rates) < 30):
        before = _now(device)
        found = search(model, source, beam=4, alpha=0.6, max_extra_tokens=3)
        spent = _now(device) - before
        rates.append(sum(len(best[0].pieces) for best in found) / spent)
    return {"output_tokens_per_second": statistics.median(rates[1:]), "sentences": sentences}


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


if __name__ == "__main__":
    main()
