"""The tables of docs/performance.md, from docs/figures: `python -m benchmarks.tables`.

With files of what benchmarks.train or benchmarks.decode printed, it prints theirs instead.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.record import FIGURES, MEASURED, ROOT, read
from seq2sweep.storage.atomic import write_whole

PAGE = Path("docs/performance.md")
WORDS = {"bf16": "In bf16", "float32": "In float32"}


def main() -> None:
    """Write the page, or print the tables of files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path)
    files = parser.parse_args().files
    for file in files:
        figures = json.loads(file.read_text("utf-8"))
        print(KINDS["train" if "sizes" in figures else "decode"](figures))
    if not files:
        page = ROOT / PAGE
        write_whole(page, with_tables(page.read_text("utf-8")))


def with_tables(page: str) -> str:
    """The page with the tables of docs/figures after `<!-- tables: KIND -->`, up to its end."""
    for kind in KINDS:
        begin, end = f"<!-- tables: {kind} -->\n", "<!-- /tables -->"
        page = re.sub(
            f"({begin}).*?({end})",
            lambda found: found[1] + blocks(kind) + found[2],  # noqa: B023  (used at once)
            page,
            flags=re.DOTALL,
        )
    return page


def blocks(kind: str) -> str:
    """All files of a kind as the page quotes them, the one where we lead least first."""
    there = [(name, read(name)) for name in MEASURED if name.startswith(kind) and exists(name)]
    there.sort(key=lambda each: least(each[1]["figures"]))
    return "".join(
        f"<!-- figures: {name} -->\n{KINDS[kind](content['figures'])}\n{origin(content)}\n"
        "<!-- /figures -->\n"
        for name, content in there
    )


def exists(name: str) -> bool:
    """Whether it has been measured."""
    return (ROOT / FIGURES / f"{name}.json").exists()


def least(figures: dict[str, Any]) -> float:
    """How many times as fast ours is against the best opponent, where that is least."""
    if isinstance(figures.get("times_of_best"), float):
        return float(figures["times_of_best"])
    inner = [least(each) for each in figures.values() if isinstance(each, dict)]
    return min(inner, default=float("inf"))


def origin(content: dict[str, Any]) -> str:
    """Where a file comes from."""
    machine = content["machine"]
    return (
        f"(`{content['command']}`, {content['date']}, commit {content['commit']}, "
        f"{machine['cores']} cores of {machine['cpu']}; text {content['figures']['text']}.)\n"
    )


def training(figures: dict[str, Any]) -> str:
    """Of benchmarks.train."""
    lines: list[str] = []
    for name, size in figures["sizes"].items():
        lines += [
            f"**{name}**: {size['layers']} + {size['layers']} layers of {size['d_model']}, "
            f"{size['vocabulary']:,} pieces, updates of at most {size['tokens']:,} target tokens, "
            f"sentences of {size['tokens_of_a_sentence']:.0f}.",
            "",
            "| trained by | target tokens/s | ours is times as fast | least to most | memory |",
            "|---|---|---|---|---|",
        ]
        there = {precision: size[precision] for precision in WORDS if precision in size}
        for precision, found in there.items():
            own = "**ours**, compiled" if "times_of_eager" in found else "**ours**"
            lines.append(row(f"{own}, {precision}", found["ours"]))
            lines += opponents(found["others"], precision)
        lines += ["", *(in_words(precision, found) for precision, found in there.items()), ""]
    return "\n".join(lines)


def opponents(others: dict[str, dict[str, Any]], precision: str) -> list[str]:
    """Rows, the best first; who is absent comes last."""
    there = [(name, way) for name, way in others.items() if "absent" not in way]
    there.sort(key=lambda each: each[1]["times"])
    return [
        *(row(f"{name}, {precision}", way) for name, way in there),
        *(
            f"| {name}, {precision} | absent: {way['absent']} | | | |"
            for name, way in others.items()
            if "absent" in way
        ),
    ]


def row(title: str, way: dict[str, Any]) -> str:
    """Of one contender."""
    times, spread = "", ""
    if "times" in way:
        times = f"{way['times']:.2f}"
        spread = f"{way['least_times']:.2f} to {way['most_times']:.2f}"
    return (
        f"| {title} | {way['tokens_per_second']:,.0f} | {times} | {spread} | "
        f"{way['peak_megabytes']:,.0f} MB |"
    )


def in_words(precision: str, found: dict[str, Any]) -> str:
    """What a precision's rows come to."""
    said = []
    if "best" in found:
        said.append(
            f"{found['times_of_best']:.2f} times as fast as the best opponent, {found['best']}, "
            f"with {found['memory_of_best']:.2f} of its memory"
        )
    if "times_of_eager" in found:
        said.append(f"{found['times_of_eager']:.2f} times as fast as without compiled layers")
    if "percent_of_floor" in found:
        said.append(f"{found['percent_of_floor']:.0f} % of the rate of its products alone")
    return f"{WORDS[precision]}: {'; '.join(said)}."


def decoding(figures: dict[str, Any]) -> str:
    """Of benchmarks.decode."""
    lines: list[str] = []
    for title, case in figures.items():
        if not isinstance(case, dict):
            continue
        rules = list(case["ours"])
        against = " | ".join(f"{rule} is times as fast" for rule in rules)
        lines += [
            f"**{title}**, {case['sentences']:,} sentences.",
            "",
            f"| decoded by | sentences/s | best batch | {against} | the same as ours "
            "| ends a sentence |",
            f"|---|---|---|{'---|' * len(rules)}---|---|",
        ]
        there = {k: way for k, way in case["others"].items() if "absent" not in way}
        ways = case["ours"] | dict(
            sorted(there.items(), key=lambda each: each[1]["against"][rules[0]]["times"])
        )
        lines += [decoder(name, way, name not in rules) for name, way in ways.items()]
        lines += [
            "",
            *(
                f"Absent: {name} ({way['absent']})."
                for name, way in case["others"].items()
                if "absent" in way
            ),
            *(
                f"{rule}: {times:.2f} times as fast as the best opponent."
                for rule, times in case["times_of_best"].items()
            ),
            "",
        ]
    return "\n".join(lines)


def decoder(name: str, way: dict[str, Any], opponent: bool) -> str:
    """The row of a contender."""
    cells = (
        f"{each['times']:.2f} ({each['least_times']:.2f} to {each['most_times']:.2f})"
        if opponent
        else ""
        for each in way["against"].values()
    )
    return (
        f"| {name if opponent else f'**{name}**'} | {way['sentences_per_second']:,.0f} | "
        f"{way['batch']} | "
        f"{' | '.join(cells)} | {way['same']} | {way['stopping']} |"
    )


KINDS: dict[str, Callable[[dict[str, Any]], str]] = {
    "train": training,
    "decode": decoding,
}


if __name__ == "__main__":
    main()
