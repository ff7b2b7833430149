"""Input as a hostile or hurried hand makes it: params.yaml and command lines, from a seed."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from seq2sweep import config as configuration
from seq2sweep import presets

SHIPPED = presets.load("phrasebook").config
TEXT = configuration.dump(SHIPPED)
KEYS = list(configuration.flatten(SHIPPED))
SECTIONS = ("data", "data.phrasebook", "model", "train", "sweep", "sweep.space", "cluster")
SWEPT = [key for key in KEYS if key.startswith(("model.", "train."))]

VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 2, 7, 99_999, 10**6, 2**31 - 1, 2**31, 2**63, 10**18, -(10**30),
    10**400, 0.0, -0.5, 0.5, 1.5, 1e308, -1e308, 1e-320, float("inf"), float("-inf"), float("nan"),
    "", " ", "0", "1e3", "1e400", "null", "ja", "nan", "ü" * 300, "a" * 5000, "../" * 40, "/",
    "/dev/zero", "/proc/self/mem", "\0", "a\0b", "a\nb", "\x1b[31mred", "\ud800", "𝕌nicode ‮ back",
    "http://[::1", "s3://", "s3://user:secret@bucket/x", "gs://bucket?x=1", "file:///etc/passwd",
    "ray://:0", "~", "$HOME", "{}", "%s%n", "de", "en", "xx", [], [[]], {}, [0], [1, 1], [1, "a"],
    ["train.en", "train.en"], ["a", "b"], [None], [True], [[1, 2], [3, 4]], ["all", "all"],
    {"a": {"b": {}}}, {1: 2}, {"low": 1, "high": 2}, {"low": 2, "high": 1}, list(range(99_999)),
    {"low": 1e-300, "high": 1e300, "log": True}, {"low": -(2**62), "high": 2**62},
    {"low": -1e308, "high": 1e308},
]  # fmt: skip
RAW = [
    "!!binary gIGC", "2020-13-45", "2020-02-03", "!!set {a, b}", "!!python/object:os.system x",
    "!!omap [a: 1]", "1:59:59", "0x" + "f" * 6000, "9" * 5000, "1" + ":59" * 9000, "0o17", "1_000",
    ".inf", "-.INF", ".nan", "!!float x", "!!int 3.5", "!!bool x", '!!int ""',
    '!!int "-"', '!!float ""', "!!timestamp x", "&a *a", "*nowhere", "<<", "? [a]", "|\n",
    "[" * 10_000, "[" * 200 + "]" * 200, "{a: " * 150 + "}" * 150, "&x [*x]", "&x {a: *x}", "@",
    "`",
    "'", '"\\ud800"', '"\\0"', "- ", "%TAG", "!<tag:x> y", "=", "~", "yes", "off", "\t", "\u2028x",
]  # fmt: skip
DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
"""In C, where PyYAML has it, several times as fast; it writes the same."""


def _set(chance: random.Random, values: dict[str, Any], key: str, value: Any) -> None:
    *path, last = key.split(".")
    for part in path:
        values = values.get(part, {}) if isinstance(values, dict) else {}
    if isinstance(values, dict):
        values[last] = value


def _yaml(values: Any) -> bytes:
    try:
        dumped: str = yaml.dump(values, Dumper=DUMPER, allow_unicode=False, width=10_000)
    except UnicodeEncodeError:  # a lone surrogate, which safe_dump writes as an escape
        dumped = yaml.safe_dump(values, allow_unicode=False, width=10_000)
    return dumped.encode()


def _odd_values(chance: random.Random) -> bytes:
    values = configuration.to_dict(SHIPPED)
    for _ in range(chance.choice((1, 1, 2, 5))):
        _set(chance, values, chance.choice([*KEYS, *SECTIONS]), chance.choice(VALUES))
    return _yaml(values)


def _extremes(chance: random.Random) -> bytes:
    """Numbers that are valid by themselves."""
    values = configuration.to_dict(SHIPPED)
    whole = [key for key, value in configuration.flatten(SHIPPED).items() if type(value) is int]
    for key in chance.sample(whole, chance.choice((1, 2, 4))):
        _set(chance, values, key, chance.choice((1, 3, 99_999, 10**9, 2**31 - 1, 2**62, 10**30)))
    return _yaml(values)


def _spaces(chance: random.Random) -> bytes:
    """A search space that is large, odd or endless."""
    values = configuration.to_dict(SHIPPED)
    sweep = values["sweep"]
    methods = ("one_at_a_time", "grid", "random", "optuna", "table3")
    sweep["method"] = chance.choice(methods)
    sweep["scheduler"] = chance.choice(("none", "asha", "median"))
    sweep["grace_steps"] = chance.choice((1, sweep["grace_steps"]))
    sweep["space"] = {}
    for key in chance.sample(SWEPT, chance.choice((0, 1, 2, 8))):
        many: list[Any] = [list(range(chance.choice((3, 100, 99_999))))]
        sweep["space"][key] = chance.choice([*many, *many, chance.choice(VALUES)])
    if chance.random() < 0.3:
        sweep["space"][f"{chance.choice(SWEPT)}, {chance.choice(SWEPT)}"] = [[1, 2], [3, 4], [5]]
    sweep[chance.choice(("samples", "seeds", "round", "rows", "base"))] = chance.choice(
        (99_999, 10**9, 2**31, ["all"] * 9999, {"model.layers": 10**9}, {"train.steps": 10**12})
    )
    return _yaml(values)


def _raw_values(chance: random.Random) -> bytes:
    lines = TEXT.splitlines()
    at = chance.choice([i for i, line in enumerate(lines) if line.startswith("  ")])
    key, _, _ = lines[at].partition(":")
    lines[at] = f"{key}: {chance.choice(RAW)}"
    return ("\n".join(lines) + "\n").encode("utf-8", "surrogatepass")


def _lines(chance: random.Random) -> bytes:
    """Lines deleted, doubled, indented, moved, cut."""
    lines = TEXT.splitlines()
    for _ in range(chance.choice((1, 1, 3, 20))):
        at = chance.randrange(len(lines))
        line = lines.pop(at)
        other = line.replace(":", chance.choice("=;#："))
        put = [[], [line, line], ["\t" + line], ["  " + line], [line[: len(line) // 2]], [other]]
        lines[at:at] = chance.choice(put)
        lines = lines or [""]
    return "\n".join(lines).encode()


def _bytes(chance: random.Random) -> bytes:
    """No text, or hardly."""
    whole = bytearray(TEXT.encode())
    for _ in range(chance.choice((1, 5, 100))):
        whole[chance.randrange(len(whole))] = chance.randrange(256)
    return bytes(
        chance.choice(
            (
                whole, whole, whole, b"", b"\0" * 100, b"\xff\xfe" + TEXT.encode("utf-16-le"),
                b"\xef\xbb\xbf" + TEXT.encode(), TEXT.replace("\n", "\r\n").encode(), b"\x80" * 9,
                whole[: chance.randrange(len(whole))], b"---\n---\n", b"[]", b"3", b"- a\n" * 50,
                b"#" * 3_000_000, TEXT.encode() + b"more: [" + b"1," * 400_000 + b"]\n",
                TEXT.encode("latin-1", "replace") + b"# \xe4\n", bytes(chance.randbytes(2000)),
            )
        )
    )  # fmt: skip


def _nesting(chance: random.Random) -> bytes:
    """Deep, endless, or larger than it looks."""
    depth = chance.choice((30, 500, 10_000))
    width = chance.choice((2, 10))
    laughs = ["a0: &a0 [x]"]
    laughs += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * width)}]" for i in range(1, 40)]
    merged = ["m0: &m0 {k: 1}"]
    merged += [f"m{i}: &m{i} {{<<: [{', '.join([f'*m{i - 1}'] * width)}]}}" for i in range(1, 30)]
    block = "\n".join("  " * i + f"k{i}:" for i in range(min(depth, 1000)))
    where = chance.choice(("sweep:\n  space: ", "download:\n  mirrors: ", "model: ", "x: "))
    made = (
        "\n".join(laughs) + f"\n{where}*a39\n",
        "\n".join(merged) + f"\n{where}*m29\n",
        f"{where}&a [*a]\n",
        f"{where}&a {{k: *a}}\n",
        f"{where}&a {{<<: *a}}\n",
        "&a {*a: *a}\n",
        where + "[" * depth + "]" * depth + "\n",
        where + "{k: " * depth + "}" * depth + "\n",
        where + "[" * depth,
        block,
        "- " * depth + "x\n",
        "? " * depth + "x\n",
        "!x " * depth + "\n",
        TEXT.replace("sweep:\n", "sweep: &s\n") + "again: *s\n",
        TEXT.replace("  heads: 4 ", "  heads: &h 4 ").replace("  layers: 2 ", "  layers: *h "),
    )
    return chance.choice(made).encode()


KINDS = (_odd_values, _odd_values, _extremes, _spaces, _raw_values, _lines, _bytes, _nesting)


def params(number: int, seed: int = 16) -> bytes:
    """The content of one hostile params.yaml; the same for a number and a seed everywhere."""
    return KINDS[number % len(KINDS)](random.Random(f"{seed} {number}"))


# --- command lines -------------------------------------------------------------------------------


def odd_places(folder: Path) -> list[str]:
    """Paths in `folder` that are no file to be read, made there, and some that are nowhere."""
    (folder / "dangling").symlink_to("nowhere")
    (folder / "loop").symlink_to("loop")
    os.mkfifo(folder / "pipe")
    (folder / "to_pipe.gz").symlink_to("pipe")
    (folder / "folder.txt").mkdir()
    (folder / "empty.txt").write_bytes(b"")
    (folder / "bytes.txt").write_bytes(bytes(range(256)))
    (folder / "text.txt").write_text("eins\nzwei\n", encoding="utf-8")
    (folder / "one.txt").write_text("eins\n", encoding="utf-8")
    (folder / "no.gz").write_text("eins\n", encoding="utf-8")
    (folder / "list.json").write_text("[1, 2]", encoding="utf-8")
    made = sorted(path.name for path in folder.iterdir())
    long = "x" * 5000
    return [
        *made, "nowhere", "text.txt/below", "/dev/zero", "/dev/tty", "", ".", "..", "/", long,
        "y/" * 2500, "a\nb", "ü\udcff", "-", "--", "wmt14", "a:b", ":", "text.txt:b", ".:base",
    ]  # fmt: skip


NUMBERS = ("0", "-1", "1", "4", "999999999999", "1e9", "nan", "inf", "x", "", "0.5", "٣", "1_0")
LANGUAGES = ("de", "en", "", "xx", "zh", "ja", "de-DE", "ü", "../x", "-")


def command(number: int, places: list[str], seed: int = 16) -> list[str]:
    """Arguments of one command line, `seq2sweep` first or `python -m pipeline.STAGE`."""
    chance = random.Random(f"{seed} command {number}")
    place = lambda: chance.choice(places)  # noqa: E731
    value = lambda: chance.choice(NUMBERS)  # noqa: E731
    language = lambda: chance.choice(LANGUAGES)  # noqa: E731
    keys = [*KEYS, *SECTIONS, "", "model.", "x", "a\nb", "model.heads.x"]
    texts = [*RAW, *map(str, NUMBERS), "[1,2]", "{a: 1}", "a\ud800"]
    lines: dict[str, Callable[[], list[str]]] = {
        "preset": lambda: [
            chance.choice(["phrasebook", "base", place(), "table3-A-heads-1"]),
            *(["--set", f"{chance.choice(keys)}={chance.choice(texts)}"] * chance.choice((0, 1))),
        ],
        "plan": lambda: ["--on", chance.choice(["8 x H100", "x", value(), f"{value()} x P100", ""]),
                         *(["--mfu", value()] * chance.choice((0, 1)))],
        "init": lambda: [place(), *([place()] * chance.choice((0, 1))), "--force",
                         *(["--from", language(), "--to", language()] * chance.choice((0, 1)))],
        "translate": lambda: [place(), *(["--n-best", value()] * chance.choice((0, 1))),
                              "--weights", place(), "--vocabulary", place()],
        "attend": lambda: [place(), *(["--target", place()] * chance.choice((0, 1))),
                           "--weights", place(), "--vocabulary", place(), "--layer", value()],
        "evaluate": lambda: ["--check"] * chance.choice((0, 1)),
        "export": lambda: [place(), "--weights", place(), "--vocabulary", place()],
        "score": lambda: [place(), place(), "--to", language(),
                          *(["--from", language()] * chance.choice((0, 1)))],
        "compare": lambda: [place(), place(),
                            *([place(), "--to", language()] * chance.choice((0, 1))),
                            *(["--samples", value()] * chance.choice((0, 1)))],
        "submit": lambda: [chance.choice(["train", "all", place()]), "--dry-run"],
        "nonsense": lambda: [place(), value()],
    }  # fmt: skip
    stages = (
        *("download", "prepare", "vocabulary", "encode", "train", "evaluate", "teacher", "silver"),
        *("student", "sweep", "attention", "report"),
    )
    name = chance.choice([*lines, "stage", "stage", "score", "compare", "translate"])
    if name == "stage":
        return ["python", "-m", f"pipeline.{chance.choice(stages)}"]
    return ["seq2sweep", name, *lines[name]()]


def disturb(number: int, project: Path, seed: int = 16) -> str:
    """Put one thing in the way of a stage in a project; returns what, in words."""
    chance = random.Random(f"{seed} disturb {number}")
    names = [
        "params.yaml", "data", "data/raw", "data/raw/provenance.json", "data/clean",
        "data/clean/train.source.txt", "data/clean/test.target.txt", "data/vocabulary",
        "data/vocabulary/vocabulary.model", "data/vocabulary/vocabulary.json", "data/encoded",
        "data/encoded/train.json", "data/encoded/train.source.tokens", "data/encoded/test.json",
        "models", "models/train", "models/train/receipt.json", "metrics", "metrics/prepare.json",
        "metrics/train.json", "metrics/evaluate.json", "metrics/curves.csv", "reports",
        "reports/translations.tsv", "reports/sweep.json",
    ]  # fmt: skip
    path = project / chance.choice(names)
    kinds = ["dangling", "loop", "pipe", "folder", "file", "json", "bytes", "deep", "gone", "zero"]
    kind = chance.choice(kinds)
    _remove(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "dangling":
        path.symlink_to("nowhere")
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind == "zero":
        path.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "bytes":
        path.write_bytes(chance.randbytes(200))
    elif kind == "deep":
        path.write_text("[" * 50_000, encoding="utf-8")
    elif kind != "gone":
        texts = [
            "",
            "[]",
            "{}",
            "3",
            "null",
            '"x"',
            '[{"step": "x"}]',
            '{"splits": [], "format": 2}',
        ]
        path.write_text(chance.choice(texts), encoding="utf-8")
    return f"{path.relative_to(project)}: {kind}"


def _remove(path: Path) -> None:
    if path.is_symlink() or path.is_file() or path.is_fifo():
        path.unlink()
    elif path.is_dir():
        for inner in path.iterdir():
            _remove(inner)
        path.rmdir()


def json_shapes(value: Any) -> Iterator[Any]:
    """The value with each of its parts, one after the other, of a shape that it never has."""
    if isinstance(value, dict):
        for key, item in value.items():
            for changed in json_shapes(item):
                yield value | {key: changed}
            yield {k: v for k, v in value.items() if k != key}
    elif isinstance(value, list) and value:
        for changed in json_shapes(value[0]):
            yield [changed, *value[1:]]
    for odd in ([], {}, "text", -1, None, [[]], {"a": 1}, True):
        if type(odd) is not type(value) or not odd:
            yield odd
