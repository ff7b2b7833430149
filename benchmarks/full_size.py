"""A rehearsal of WMT14 at its size, without its text: `python -m benchmarks.full_size`.

Makes archives in the layout of statmt.org from `--text` (or the phrasebook), for as many pairs as
asked, and runs the data stages on them in a project of their own, as `dvc repro` does. Reports
seconds, of the clock and of the CPU, pairs a second and peak memory (all processes of a stage
together, proportional set size) as JSON.
"""

from __future__ import annotations

import argparse
import hashlib
import html
import io
import json
import os
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import yaml

from benchmarks.text import pairs
from seq2sweep import config as configuration
from seq2sweep import console, presets
from seq2sweep.data.files import write_pairs

ROOT = Path(__file__).parents[1]
STAGES = ("download", "prepare", "vocabulary", "encode")
HELD_OUT = 3000
CORPORA = {"europarl-v7": 0.42, "commoncrawl": 0.53, "news-commentary-v9": 0.05}
"""Names of the parts of the training text, and about what share of it each is."""


def main() -> None:
    """Measure each size, print one JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--pairs", type=int, nargs="+", default=[1_000_000, 4_500_000])
    parser.add_argument("--pieces", type=int, default=37_000)
    parser.add_argument("--text", type=Path, nargs=2, metavar=("SOURCE", "TARGET"))
    parser.add_argument("--folder", type=Path, help="where to work (a temporary folder)")
    options = parser.parse_args()
    text = tuple(path.resolve() for path in options.text) if options.text else None
    results = {}
    for count in options.pairs:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            results[str(count)] = rehearse(Path(folder), count, options.pieces, text)
    print(json.dumps(results, indent=2))


def rehearse(
    folder: Path, count: int, pieces: int, text: tuple[Path, Path] | None
) -> dict[str, Any]:
    """Figures of each stage on `count` training pairs."""
    make_archives(folder, count, text)
    changes = {
        "data.folder": str(folder / "registry"),
        "download.folder": str(folder / "downloads"),
        "vocabulary.size": pieces,
    }
    config = configuration.with_changes(presets.load("wmt14-en-de-base").config, changes)
    (folder / "params.yaml").write_text(configuration.dump(config), encoding="utf-8")
    results: dict[str, Any] = {}
    for stage in STAGES:
        results[stage] = figures = run([sys.executable, "-m", f"pipeline.{stage}"], folder)
        figures["pairs_per_second"] = count / figures["seconds"]
        console.say(f"{count:,} pairs, {stage}: {json.dumps(figures)}")
    plan = (
        "from pathlib import Path; from seq2sweep.data.bitext import Bitext; "
        "from seq2sweep.data.batching import plan_epoch; "
        "from benchmarks.data import padding_share; import json, time; "
        "b = Bitext.open(Path('data/encoded'), 'train'); s = time.perf_counter(); "
        "l = b.source_lengths, b.target_lengths; "
        "p = plan_epoch(*l, tokens_per_update=25_000, seed=1, epoch=0); "
        "t = time.perf_counter() - s; print(json.dumps({'plan_seconds': t, 'updates': len(p), "
        "'padding_share': padding_share(p, *l)}))"
    )
    results["plan"] = run([sys.executable, "-c", plan], folder)
    results["plan"] |= json.loads((folder / "output").read_text())
    results["prepare"]["metrics"] = json.loads((folder / "metrics/prepare.json").read_text())
    results["bytes"] = {
        name: sum(file.stat().st_size for file in (folder / name).rglob("*") if file.is_file())
        for name in ("downloads", "data/clean", "data/encoded")
    }
    return results


def make_archives(folder: Path, count: int, text: tuple[Path, Path] | None) -> None:
    """downloads/ with archives in the true layout, and registry/ that describes them."""
    downloads = folder / "downloads"
    downloads.mkdir()
    registry = yaml.safe_load((ROOT / "src/seq2sweep/data/registry/wmt14.yaml").read_text())
    made = iter(console.progress(pairs(count, text), "make text", "pairs", count))
    paths = {side: folder / f"{side}.txt" for side in ("en", "de")}
    written = 0
    for entry in registry["datasets"]["wmt14-en-de"]["train"]:
        share = (
            count - written
            if entry is registry["datasets"]["wmt14-en-de"]["train"][-1]
            else int(count * CORPORA[entry["name"]])
        )
        write_pairs(paths["en"], paths["de"], (next(made) for _ in range(share)))
        written += share
        with tarfile.open(downloads / entry["archive"], "w:gz", compresslevel=1) as archive:
            for language, path in paths.items():
                archive.add(path, entry["members"].replace("{language}", language))
    for file, role in (("dev.tgz", "valid"), ("test-full.tgz", "test")):
        (entry,) = registry["datasets"]["wmt14-en-de"][role]
        entry["lines"] = HELD_OUT
        held_out = list(pairs(HELD_OUT, text, seed=len(role)))
        with tarfile.open(downloads / file, "w:gz") as archive:
            for side, (language, member) in enumerate(
                (("en", entry["members"]["source"]), ("de", entry["members"]["target"]))
            ):
                content = sgml([pair[side] for pair in held_out]).encode()
                info = tarfile.TarInfo(member.replace("{language}", language))
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    for file, described in registry["archives"].items():
        if (downloads / file).exists():
            with (downloads / file).open("rb") as stream:
                described["sha256"] = hashlib.file_digest(stream, "sha256").hexdigest()
            described["bytes"] = (downloads / file).stat().st_size
            described.pop("md5", None)
    (folder / "registry").mkdir()
    (folder / "registry/wmt14.yaml").write_text(yaml.safe_dump(registry))
    for path in paths.values():
        path.unlink()


def sgml(lines: list[str]) -> str:
    """A test set as WMT gives it out."""
    segments = "\n".join(
        f'<seg id="{i}">{html.escape(line)}</seg>' for i, line in enumerate(lines, start=1)
    )
    return f'<refset setid="made" srclang="any">\n<doc docid="d">\n{segments}\n</doc>\n</refset>\n'


def run(command: list[str], folder: Path) -> dict[str, Any]:
    """Seconds and peak memory of a command and all its children; it must succeed."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    started, cpu = time.perf_counter(), cpu_seconds()
    peak = 0
    with (folder / "output").open("w") as output:
        process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, "PYTHONPATH": paths}, stdout=output
        )
        while process.poll() is None:
            peak = max(peak, memory(psutil.Process(process.pid)))
            time.sleep(0.25)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed with status {process.returncode}")
    return {
        "seconds": time.perf_counter() - started,
        "cpu_seconds": cpu_seconds() - cpu,
        "peak_megabytes": peak / 1e6,
    }


def cpu_seconds() -> float:
    """Of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def memory(process: psutil.Process) -> int:
    """Bytes of a process and its children, each shared page counted once."""
    total = 0
    try:
        for each in (process, *process.children(recursive=True)):
            total += each.memory_full_info().pss
    except psutil.Error:
        pass  # it ended while it was looked at
    return total


if __name__ == "__main__":
    main()
