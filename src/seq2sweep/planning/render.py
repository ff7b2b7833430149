"""The plan as a page for a terminal: plan.txt, filled in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tqdm import tqdm

from seq2sweep import console
from seq2sweep.report.templates import environment


def overview(plan: dict[str, Any]) -> str:
    """All of it; notes come last, where the eye is."""
    made = environment(Path(__file__).parent, autoescape=False)
    made.filters |= {
        "columns": _columns,
        "flops": lambda count: f"{count:.2e}".replace("e+", "e"),
        "number": lambda value, decimals=0: f"{value:,.{decimals}f}",
        "size": lambda count: tqdm.format_sizeof(count, "B"),  # in powers of 1000: `1.70GB`
        "span": _span,
        "time": as_time,
    }
    currency = plan["total"]["currency"]

    def money(amount: float | None) -> str:
        return "unknown" if amount is None else f"{amount:,.2f} {currency}"

    return made.get_template("plan.txt").render(plan, money=money).rstrip("\n")


def _columns(text: str, aligned: str) -> str:
    """Lines of cells between bars, in columns as wide as they must be; aligned: `<` or `>` each."""
    indent, sides = "  " + " " * aligned.count(" "), aligned.strip()
    rows = [
        [cell.strip() for cell in line.split("|", len(sides) - 1)] for line in text.splitlines()
    ]
    return "".join(f"{indent}{line}\n" for line in console.columns(rows, sides))


def as_time(seconds: float | None) -> str:
    """`1h02m`, or days."""
    if seconds is None:
        return "unknown"
    return f"{seconds / 86400:,.1f} days" if seconds >= 2 * 86400 else console.duration(seconds)


def _span(total: dict[str, Any]) -> str:
    """The time of all, and between what and what it may be."""
    seconds = total["seconds"]
    if seconds is None or not (total["at_most"] or total["about"]):
        return as_time(seconds)
    reasons = ["trials may be stopped early"] * total["at_most"]
    reasons += ["rates were not measured with these models on these devices"] * total["about"]
    span = f"from {as_time(total['least_seconds'])} to {as_time(total['most_seconds'])}"
    return f"{as_time(seconds)}, {span}: {', and '.join(reasons)}"
