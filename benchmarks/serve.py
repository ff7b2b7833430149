"""Requests to `seq2sweep serve` at the same time, joined into batches and one by one.

    python -m benchmarks.serve --project FOLDER [--requests 200] [--clients 200] [--many 10000]

Both servers run all the while, and answer in turns; each request is one sentence of the test set.
Printed are the medians over turns of requests a second and of latency in milliseconds (50th and
99th percentile), how many translations are equal, and how the memory of the server that joins
requests grows over `--many` more. FOLDER holds a finished `dvc repro`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import socket
import statistics
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import uvicorn

from seq2sweep import config as configuration
from seq2sweep import console
from seq2sweep.data.files import text_paths
from seq2sweep.data.reading import read_lines
from seq2sweep.evaluate.translator import Translator
from seq2sweep.serving.http_app import LARGEST_BATCH, Answers, app
from seq2sweep.serving.http_server import LOOPBACK

Answer = tuple[str, float]
"""A translation and how long it took, in seconds."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--project", type=Path, default=Path())
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--clients", type=int, default=200, help="that wait at the same time")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--many", type=int, default=10_000)
    options = parser.parse_args()
    print(json.dumps(measure(options), indent=2))


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """What is printed."""
    source, _ = text_paths(options.project / "data/clean", "test")
    lines = list(read_lines(source))
    asked = [lines[i % len(lines)] for i in range(options.requests)]
    servers = {name: Process(options.project, size) for name, size in ARMS.items()}
    found: dict[str, Any] = {
        name: {"requests_per_second": [], "p50_ms": [], "p99_ms": []} for name in ARMS
    }
    texts: dict[str, list[str]] = {}
    try:
        for name, server in servers.items():
            texts[name] = [text for text, _ in server.ask(asked, options.clients)]  # warm
        for _ in console.progress(range(options.turns), "serve", "turns"):
            for name, server in servers.items():
                begun = time.perf_counter()
                answers = server.ask(asked, options.clients)
                seconds = time.perf_counter() - begun
                latencies = sorted(one * 1000 for _, one in answers)
                found[name]["requests_per_second"].append(len(asked) / seconds)
                found[name]["p50_ms"].append(latencies[len(latencies) // 2])
                found[name]["p99_ms"].append(latencies[int(len(latencies) * 0.99)])
        joined, single = texts.values()
        memory = servers["joined"].memory(lines, options.many)
    finally:
        for server in servers.values():
            server.close()
    return {
        "requests": len(asked),
        "clients": options.clients,
        **{
            name: {key: round(statistics.median(values), 1) for key, values in arm.items()}
            for name, arm in found.items()
        },
        "ratio": round(
            statistics.median(
                a / b
                for a, b in zip(
                    *(arm["requests_per_second"] for arm in found.values()), strict=True
                )
            ),
            2,
        ),
        "equal_translations": sum(a == b for a, b in zip(joined, single, strict=True)),
        "memory_mib": memory,
    }


ARMS = {"joined": LARGEST_BATCH, "one by one": 1}


class Process:
    """A server in a process of its own."""

    def __init__(self, project: Path, largest_batch: int) -> None:
        here, there = multiprocessing.get_context("spawn").Pipe()
        self._process = multiprocessing.get_context("spawn").Process(
            target=_serve, args=(project, largest_batch, there), daemon=True
        )
        self._process.start()
        self.address = f"http://127.0.0.1:{here.recv()}/translate"

    def ask(self, lines: list[str], clients: int) -> list[Answer]:
        """Each line a request, at most so many at once."""
        return asyncio.run(_ask(self.address, lines, clients))

    def memory(self, lines: list[str], many: int) -> list[float]:
        """Of the process in MB, before, and after each quarter of so many requests."""
        process = psutil.Process(self._process.pid)
        seen = [process.memory_info().rss]
        for quarter in range(4):
            begin = quarter * many // 4
            self.ask([lines[(begin + i) % len(lines)] for i in range(many // 4)], 50)
            seen.append(process.memory_info().rss)
        return [round(size / 2**20, 1) for size in seen]

    def close(self) -> None:
        self._process.kill()


async def _ask(address: str, lines: list[str], clients: int) -> list[Answer]:
    limit = asyncio.Semaphore(clients)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def one(line: str) -> Answer:
            async with limit:
                begun = time.perf_counter()
                async with session.post(address, json={"text": line}) as answer:
                    answer.raise_for_status()
                    text = (await answer.json())["translations"][0][0]["text"]
                return text, time.perf_counter() - begun

        return list(await asyncio.gather(*(one(line) for line in lines)))


def _serve(project: Path, largest_batch: int, said: Connection) -> None:
    os.chdir(project)
    config = configuration.load(Path("params.yaml"))
    translator = Translator(Path("models/train"), Path("data/vocabulary"), config.evaluate)
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    said.send(listener.getsockname()[1])
    served = app(Answers(translator, largest_batch), None, LOOPBACK)
    uvicorn.Server(uvicorn.Config(served, log_level="warning", access_log=False)).run(
        sockets=[listener]
    )


if __name__ == "__main__":
    main()
