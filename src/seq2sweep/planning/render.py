"""The plan as a page for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tqdm import tqdm

from seq2sweep import console


def overview(plan: dict[str, Any]) -> str:
    """All of it; notes come last, where the eye is."""
    about = plan["data"]
    pairs = f"{'about ' * (not about['counted'])}{about['pairs']:,}"
    blocks = [
        [f"{about['dataset']}, {' to '.join(about['languages'])}: {pairs} training pairs"],
        ["STAGES", *_indented(_stages(plan))],
        ["DATA", *_indented(data_lines(about))],
        ["MODEL AND TRAINING", *_indented(_training(plan))],
        ["DEVICES", *_indented([*_device(plan["device"]), *_memory(plan["memory"])])],
        ["TIME", *_indented(_times(plan))],
        ["SWEEP", *_indented(_sweep(plan))],
        ["IN ALL, of the stages that run", *_indented(_total(plan["total"]))],
    ]
    if plan["notes"]:
        blocks.append(["NOTE", *_indented(plan["notes"])])
    return "\n\n".join("\n".join(block) for block in blocks)


def data_lines(plan: dict[str, Any]) -> list[str]:
    """Downloads and disk."""
    found, disk = plan["download"], plan["disk"]
    shown = ["Nothing to download"]
    if found["files"]:
        unknown = f", and {found['unknown_sizes']} of unknown size" * bool(found["unknown_sizes"])
        shown = [
            f"To download into {found['folder']}: {_size(found['missing_bytes'])} of "
            f"{_size(found['bytes'])}{unknown}"
        ]
    width = max((len(file["file"]) for file in found["files"]), default=0)
    for file in found["files"]:
        part = f"{_size(file['there'])} there" if file["there"] else "missing"
        state = "there" if file["complete"] else part
        total = "size unknown" if file["bytes"] is None else _size(file["bytes"])
        shown.append(f"  {file['file']:{width}}  {total:>12}  {state:14}  {file['from']}")
    enough = "enough" if disk["short"] is None else f"NOT ENOUGH in {disk['short']}"
    return [
        *shown,
        f"Disk, about: {_size(disk['needed'])} of {_size(disk['free'])} free: {enough}",
        f"  downloads {_size(disk['downloads'])}, clean text {_size(disk['clean'])}, "
        f"encoded {_size(disk['encoded'])}, DVC's cache of it {_size(disk['cache'])}, "
        f"checkpoints {_size(disk['checkpoints'])}",
    ]


def _stages(plan: dict[str, Any]) -> list[str]:
    rows = [
        (
            stage["stage"],
            "runs" if stage["runs"] else "-",
            _time(stage["seconds"]) if stage["runs"] else "",
            stage["why"] or "nothing to do",
        )
        for stage in plan["stages"]
    ]
    return _table(rows, "<<><")


def _training(plan: dict[str, Any]) -> list[str]:
    found = plan["training"]
    steps = found["steps"]
    source, target = (found[f"{side}_tokens"] / steps for side in ("source", "target"))
    shown = [
        f"{found['parameters'] / 1e6:,.2f}M parameters at a vocabulary of "
        f"{found['vocabulary_size']:,}",
        f"{steps:,} updates of {source:,.0f} source and {target:,.0f} target tokens, without "
        f"padding ({found['lengths']})",
        f"{_flops(found['flops'])} FLOPs (a multiply-add is two, padding is not counted)",
    ]
    if found["paper_rule_flops"]:
        shown.append(
            f"{_flops(found['paper_rule_flops'])} FLOPs by the paper's rule: "
            "time x devices x sustained rate"
        )
    return shown


def _device(device: dict[str, Any]) -> list[str]:
    cores = "CPU core(s) of this machine" if device["name"] == "CPU" else device["name"]
    shown = [f"{device['count']} x {cores}, {device['precision']}"]
    if device["peak"]:
        shown[0] += f", peak {device['peak'] / 1e12:,.1f} TFLOP/s each"
    if device["how"]:
        rate = device["flops_per_second"]
        shown_rate = f"{rate / 1e12:,.1f} T" if rate >= 1e12 else f"{rate / 1e9:,.1f} G"
        about = "about " * device["about"]
        shown.append(f"together {about}{shown_rate}FLOP/s: {device['how']}")
    return shown


def _memory(memory: dict[str, Any]) -> list[str]:
    verdict = {True: ": fits", False: ": DOES NOT FIT", None: ""}[memory["fits"]]
    available = "" if memory["available"] is None else f" of {_size(memory['available'])}"
    parts = ("weights", "gradients", "optimizer", "exchange", "casts")
    model = ", ".join(f"{part} {_size(memory[part])}" for part in parts if memory[part])
    shown = [
        f"memory of a worker, about {_size(memory['needed'])}{available}{verdict}",
        f"  {model}",
        f"  activations {_size(memory['activations'])} and logits {_size(memory['logits'])} of "
        f"{memory['tokens']:,} tokens a pass, libraries and fragments {_size(memory['other'])}",
    ]
    return shown + [f"  {memory['advice']}"] * bool(memory["advice"])


def _times(plan: dict[str, Any]) -> list[str]:
    rows = [
        (stage["stage"], part["part"], _time(part["seconds"]), part["how"])
        for stage in plan["stages"]
        if stage["runs"]
        for part in stage["parts"]
    ]
    shown = [
        (name if index == 0 or rows[index - 1][0] != name else "", *rest)
        for index, (name, *rest) in enumerate(rows)
    ]
    return _table(shown, "<<><") or ["nothing runs"]


def _sweep(plan: dict[str, Any]) -> list[str]:
    sweep, currency = plan["sweep"], plan["total"]["currency"]
    if sweep["method"] == "none":
        return [f"none: no variant is trained; {sweep['note']}"]
    priced = any(row["cost"] is not None for row in sweep["rows"])
    head = ("variant", "trainings", "parameters", "steps", "FLOPs", "memory", "time of one")
    rows = [
        (
            row["variant"],
            f"{row['trainings']:,}",
            f"{row['parameters'] / 1e6:,.2f}M",
            f"{row['steps']:,}",
            _flops(row["flops"]),
            _size(row["memory"]),
            _time(row["seconds"]),
            *([_money(row["cost"], currency)] if priced else []),
        )
        for row in sweep["rows"]
    ]
    trainings = sum(row["trainings"] for row in sweep["rows"])
    about = "about " * any(row["about"] for row in sweep["rows"])
    shown = [
        f"{sweep['method']}: {trainings} training(s), {sweep['slots']} at once, "
        f"{_flops(sweep['flops'])} FLOPs, {about}{_time(sweep['seconds'])}"
    ]
    if sweep["at_most"]:
        shown[0] += (
            f" at most; {_time(sweep['least_seconds'])} if all but one are stopped at their "
            "first rung"
        )
    shown += _table([(*head, *(["cost"] if priced else [])), *rows], "<" + ">" * 7)
    first = sweep["rows"][0]
    shown += [f"rate of {first['variant']}: {first['how']}"] * bool(first["how"])
    shown += [f"{one['variant']}: refused ({one['cause']})" for one in sweep["refused"]]
    return shown + [sweep["note"]] * bool(sweep["note"])


def _total(total: dict[str, Any]) -> list[str]:
    seconds, reasons, about = total["seconds"], [], "about " * total["about"]
    time = about + _time(seconds)
    if seconds is not None:
        least, most = total["least_seconds"] if total["at_most"] else seconds, seconds
        if total["at_most"]:
            reasons.append("trials may be stopped early")
        if total["about"]:
            least, most = least / 2, most * 2
            reasons.append("rates may be off by a factor of two")
        if reasons:
            time += f", from {_time(least)} to {_time(most)}: {', and '.join(reasons)}"
    rows = [("time", time)]
    if total["device_hours"] is not None and total["currency"]:
        rows.append(("devices held", f"{about}{total['device_hours']:,.1f} device-hours"))
    if total["cost"] is not None:
        cost = _money(total["cost"], total["currency"])
        rows.append(("cost", f"{about}{cost}, by infra/prices.yaml"))
    elif total["currency"]:
        rows.append(("cost", "unknown: infra/prices.yaml has no price for them"))
    if total["energy_kwh"] is not None:
        energy = f"{total['energy_kwh']:,.1f} kWh at most, of the devices alone"
        rows.append(("energy", energy))
    return _table(rows, "<<")


def _size(count: float) -> str:
    """Bytes in powers of 1000: `1.70GB`."""
    return tqdm.format_sizeof(count, "B")


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    return f"{seconds / 86400:,.1f} days" if seconds >= 2 * 86400 else console.duration(seconds)


def _flops(count: float) -> str:
    return f"{count:.2e}".replace("e+", "e")


def _money(amount: float | None, currency: str) -> str:
    return "unknown" if amount is None else f"{amount:,.2f} {currency}"


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _table(rows: Sequence[Sequence[str]], aligned: str) -> list[str]:
    """Columns as wide as they must be; aligned: `<` or `>` for each."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            f"{cell:{side}{width}}" for cell, side, width in zip(row, aligned, widths, strict=False)
        ).rstrip()
        for row in rows
    ]
