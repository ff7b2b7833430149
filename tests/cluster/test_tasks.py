"""Chunks shared out over the nodes of a Ray cluster: the bytes of one process."""

from __future__ import annotations

import collections
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import ray
import torch
from ray.exceptions import OutOfMemoryError

from seq2sweep import config as configuration
from seq2sweep import console
from seq2sweep.cluster import session, tasks
from seq2sweep.cluster.session import Node, RayDiedError
from seq2sweep.cluster.tasks import ray_tasks, ray_tasks_on_gpus
from seq2sweep.config import Config
from seq2sweep.data import bitext
from seq2sweep.data.bitext import read_header, write_split
from seq2sweep.data.files import SIDES, text_name
from seq2sweep.data.reading import read_lines
from seq2sweep.data.vocabulary import Vocabulary
from seq2sweep.decode.beam import translate
from seq2sweep.errors import OperationalError, UserError, ending
from seq2sweep.model.architecture.transformer import Transformer
from tests.cluster.chaos import LONGEST_WAIT
from tests.conftest import Corpus


def where(x: int) -> tuple[int, str]:
    return x, ray.get_runtime_context().get_node_id()


def refuse(limit: int, x: int) -> int:
    if x == limit:
        raise UserError(f"line {x} is wrong")
    return x


@pytest.mark.usefixtures("cluster")
def test_results_come_in_the_order_of_the_items() -> None:
    assert [x for x, _ in ray_tasks(where, range(30))] == list(range(30))


def test_a_task_that_ray_ended_for_its_memory_is_told_of_as_a_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No key of training helps it."""
    monkeypatch.setattr(tasks, "ray", Mock())
    monkeypatch.setattr(tasks, "nodes", lambda: [Node(1, 0)])
    low = OutOfMemoryError("1 worker(s) were killed due to the node running low on memory.")
    monkeypatch.setattr(tasks, "in_order", Mock(side_effect=low))
    with pytest.raises(
        OperationalError, match=r"^out of memory .*: free some on that node"
    ) as told:
        list(ray_tasks(where, range(3)))
    assert "evaluate.tokens_per_batch" in str(told.value)
    assert "train." not in str(told.value)


@pytest.mark.usefixtures("cluster")
def test_an_error_of_the_function_is_raised_here() -> None:
    with pytest.raises(UserError, match="line 5 is wrong") as caught:
        list(ray_tasks(functools.partial(refuse, 5), range(10)))
    assert ending(caught.value)[0] == "line 5 is wrong"
    (note,) = caught.value.__notes__
    assert ", in refuse\n" in note


@pytest.mark.parametrize(
    ("machines", "places"), [([Node(4, 0), Node(2, 0)], 6), ([Node(4, 2), Node(2, 0)], 2), ([], 0)]
)
def test_places_are_gpus_where_there_are_any(
    monkeypatch: pytest.MonkeyPatch, machines: list[Node], places: int
) -> None:
    monkeypatch.setattr(tasks, "nodes", lambda: machines)
    assert ray_tasks_on_gpus.places() == places


@pytest.mark.parametrize(
    ("seen", "given", "numbers"),
    [
        (None, ([0], [1], [1]), [0, 1, 1]),
        ("4,5", (["5"], ["4"], ["4"]), [1, 0, 0]),
        ("GPU-b,GPU-a", (["GPU-b"], ["GPU-a"], ["GPU-a"]), [0, 1, 1]),
        ("3", (["3"], ["3"], ["3"]), [0, 0, 0]),  # as Ray itself has it where a node has one
        (None, ([2], [3], [3]), [0, 1, 1]),  # more than there are
    ],
)
def test_a_process_turns_to_the_gpu_that_its_task_is_given(
    monkeypatch: pytest.MonkeyPatch, seen: str | None, given: tuple[Any, ...], numbers: list[int]
) -> None:
    """With a model of its own there; that of the GPU before is gone when the next is loaded."""
    cuda, happened = Mock(), list[object]()
    cuda.device_count.return_value = 2
    cuda.is_initialized.side_effect = lambda: bool(happened)
    cuda.set_device.side_effect = happened.append
    cuda.empty_cache.side_effect = lambda: happened.append(f"emptied, {len(tasks._functions)} kept")
    reference = SimpleNamespace(hex=lambda: "a")
    ids = iter(given)
    monkeypatch.setattr(tasks, "_functions", {})
    monkeypatch.setattr(tasks.torch, "cuda", cuda)
    monkeypatch.setattr(tasks.ray, "get_gpu_ids", lambda: next(ids))
    monkeypatch.setattr(tasks.ray, "get", lambda one: lambda item: happened.append("searched"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if seen is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", seen)
    for _ in given:
        tasks._apply([reference], 1)  # type: ignore[list-item]
    expected: list[object] = []
    for number, before in zip(numbers, [None, *numbers], strict=False):
        expected.append(number)
        if number != before:
            expected.append("emptied, 0 kept")
        expected += ["searched", "emptied, 1 kept"]
    assert happened == expected


def test_a_process_keeps_the_part_of_a_gpu_that_it_opened_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CUDA shows it no other (MIG), whatever else the node has."""
    cuda, opened = Mock(), list[int]()
    cuda.device_count.return_value = 1
    cuda.is_initialized.side_effect = lambda: bool(opened)
    cuda.set_device.side_effect = opened.append
    ids = iter((["MIG-b"], ["MIG-a"]))
    monkeypatch.setattr(tasks.torch, "cuda", cuda)
    monkeypatch.setattr(tasks.ray, "get_gpu_ids", lambda: next(ids))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-a,MIG-b")
    for _ in range(2):
        assert tasks._use_own_gpu() == 0
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "MIG-b"
    assert opened == [0, 0]


def test_a_gpu_without_room_for_cuda_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks.ray, "get_gpu_ids", lambda: [0])
    monkeypatch.setattr(tasks.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(tasks.torch.cuda, "device_count", lambda: 1)
    low = torch.OutOfMemoryError("CUDA out of memory")
    monkeypatch.setattr(tasks.torch.cuda, "set_device", Mock(side_effect=low))
    with pytest.raises(OperationalError, match=r"^out of memory .*: free some on that node"):
        tasks._use_own_gpu()


OUT_OF_MEMORY = """
import os, time
usual = os.environ.setdefault

def fewer(name, value):
    # Each try starts a worker. A sixth of the tries shows as well whether they end.
    return usual(name, str(int(value) // 6) if name == "RAY_task_oom_retries" else value)

os.environ.setdefault = fewer
from seq2sweep import presets
from seq2sweep.cluster.session import ray_session
from seq2sweep.cluster.tasks import ray_tasks
with ray_session(presets.load("phrasebook").config.cluster):
    list(ray_tasks(time.sleep, [1000]))
"""


def test_a_task_that_never_fits_is_not_tried_for_ever() -> None:
    """Ray finds the machine out of memory whenever it looks."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, "-c", OUT_OF_MEMORY],
        env=clean
        | {
            "RAY_memory_usage_threshold": "0.001",
            "RAY_memory_monitor_refresh_ms": "250",
            "RAY_task_oom_retry_delay_base_ms": "1",
        },
        capture_output=True,
        text=True,
        timeout=LONGEST_WAIT,
        check=False,
    )
    assert "OperationalError: out of memory (Ray killed its process" in done.stderr


def test_a_dead_ray_is_noticed_while_a_task_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else Ray ends this process after a minute, without a line."""
    looks = Mock(side_effect=[True, False, RayDiedError("Ray's head has not answered")])
    monkeypatch.setattr(tasks, "ALIVE_SECONDS", 0.01)
    monkeypatch.setattr(tasks, "require_alive", SimpleNamespace(answers=looks))
    asked = Mock(return_value=[Node(1, 0)])
    monkeypatch.setattr(tasks, "nodes", asked)
    first: Future[None] = Future()
    first.set_result(None)
    with pytest.raises(RayDiedError):
        tasks._Wait(first, 0)(Future())
    assert asked.call_count == 1, "nothing is asked of a head that does not answer"


def test_it_is_said_that_a_task_waits_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    first: Future[None] = Future()
    task: Future[None] = Future()
    machines, free = [Node(2, 1)], [Node(2, 0)]
    said: list[str] = []

    def answers() -> bool:
        said.append(console.doing_now())
        if len(said) == 2:
            first.set_result(None)  # what is not free is taken by tasks of this call
        elif len(said) == 3:
            machines[0] = Node(2, 0)
        elif len(said) == 4:
            task.set_result(None)
        return True

    monkeypatch.setattr(tasks, "ALIVE_SECONDS", 0.01)
    monkeypatch.setattr(tasks, "require_alive", SimpleNamespace(answers=answers))
    for module in (tasks, session):
        monkeypatch.setattr(module, "nodes", lambda: machines)
    monkeypatch.setattr(session, "free_nodes", lambda: free)
    console.doing("evaluate")
    tasks._Wait(first, 1)(task)
    waiting = "waiting for resources for a task of 1 CPU and 1 GPUs; "
    assert said == [
        "evaluate",
        f"{waiting}free is 1 node of 2 CPUs, 0 GPUs",
        "evaluate",
        f"{waiting}the cluster is 1 node of 2 CPUs, 0 GPUs",
    ]
    assert console.doing_now() == "evaluate"


@pytest.mark.usefixtures("cluster")
def test_a_corpus_is_translated_by_tasks_as_by_one_process(
    tiny_config: Config, tiny_corpus: Corpus
) -> None:
    changes = {"evaluate.tokens_per_batch": 40, "evaluate.max_extra_tokens": 4}
    config = configuration.with_changes(tiny_config, changes)
    pieces = Vocabulary.open(tiny_corpus.vocabulary)
    torch.manual_seed(3)
    model = Transformer(config.model, len(pieces)).eval()
    lines = [*read_lines(tiny_corpus.clean / text_name("valid", "source")), ""]
    plain = translate(model, pieces, lines, config.evaluate, None)
    found = translate(model, pieces, lines, config.evaluate, None, mapper=ray_tasks_on_gpus)
    assert [[t.text for t in each] for each in found] == [[t.text for t in each] for each in plain]
    assert len({each[0].text for each in found}) > 2


@pytest.mark.usefixtures("cluster")
def test_encoding_by_tasks_gives_the_bytes_of_one_process(
    tiny_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bitext, "BYTES_PER_CHUNK", 1000)
    pieces = Vocabulary.open(tiny_corpus.vocabulary)
    texts = {side: tiny_corpus.clean / text_name("train", side) for side in SIDES}
    chunks: collections.Counter[int] = collections.Counter()
    write_split(
        tmp_path,
        "train",
        texts,
        pieces,
        {"source": "en", "target": "de"},
        ray_tasks,
        lambda sentences: chunks.update([sentences]),
    )
    assert sum(chunks.values()) > 10
    assert sum(sentences * count for sentences, count in chunks.items()) == 800
    for name in ("train.json", *read_header(tmp_path, "train")["files"]):
        assert (tmp_path / name).read_bytes() == (tiny_corpus.encoded / name).read_bytes()


JOINED = """
import os, pathlib, sys, time
from dataclasses import replace
from ray.cluster_utils import Cluster
import ray
from seq2sweep import presets
from seq2sweep.cluster.session import ray_session
from seq2sweep.cluster.tasks import on_node, ray_tasks
from seq2sweep.data import bitext
from seq2sweep.data.vocabulary import Vocabulary

clean, vocabulary, encoded = map(pathlib.Path, sys.argv[1:4])
# Of this process alone, which has started: not of the nodes that it starts.
os.environ["PYTHONPATH"] = sys.argv[4]
bitext.BYTES_PER_CHUNK = 1000

def asked():
    import seq2sweep
    return hasattr(seq2sweep, "OTHER"), os.environ["THEIRS"], os.environ["OMP_WAIT_POLICY"]

def where(x):
    time.sleep(0.05)  # else one node has done all before Ray knows that the other is free again
    return ray.get_runtime_context().get_node_id()

def process(x):
    return os.getpid()

def seen(x):
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES"), len(ray.get_gpu_ids())
    return os.getpid(), *gpus, *asked()

def ask_all():
    print([ray.get(on_node(node["NodeID"], asked)) for node in ray.nodes()])

def work():
    ask_all()
    cluster.add_node(num_cpus=1, num_gpus=2)
    ask_all()
    texts = {side: clean / f"train.{side}.txt" for side in ("source", "target")}
    languages = {"source": "en", "target": "de"}
    pieces = Vocabulary.open(vocabulary)
    bitext.write_split(encoded, "train", texts, pieces, languages, ray_tasks)
    print(len({*ray_tasks(where, range(40))}), "nodes")
    print(len({*ray_tasks(process, range(4), gpus=1)}), "process on the GPU")
    [(_, *of_task)] = {*ray_tasks(seen, range(3), gpus=1)}
    print("one process where there are several, which sees", *of_task)

nodes = {"num_cpus": 1, "include_dashboard": False}
cluster = Cluster(initialize_head=True, head_node_args=nodes)
try:
    with ray_session(replace(presets.load("phrasebook").config.cluster, address=cluster.address)):
        work()
finally:
    cluster.shutdown()
"""


@dataclass(frozen=True)
class Joined:
    """lines: that the driver of JOINED wrote; errors: likewise; encoded: a folder."""

    lines: list[str]
    errors: str
    encoded: Path


@pytest.fixture(scope="module")
def joined(tiny_corpus: Corpus) -> Iterator[Joined]:
    """A job that was submitted with settings of its own, on nodes that have other code."""
    root = Path(__file__).parents[2]
    folder = Path(tempfile.mkdtemp(prefix="s2s-two-", dir="/tmp"))
    other, encoded = folder / "other", folder / "encoded"
    (other / "seq2sweep").mkdir(parents=True)
    (other / "seq2sweep/__init__.py").write_text("OTHER = True\n")
    encoded.mkdir()
    job = {"runtime_env": {"env_vars": {"THEIRS": "kept"}, "excludes": ["data"]}}
    # But for what a Ray in this process has set there for its own children.
    usual = {k: v for k, v in os.environ.items() if k not in ("RAY_ADDRESS", "RAY_AUTH_MODE")}
    try:
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                JOINED,
                tiny_corpus.clean,
                tiny_corpus.vocabulary,
                encoded,
                other,
            ],
            env=usual
            | {
                "PYTHONPATH": os.pathsep.join([str(root), str(root / "src")]),
                "RAY_TMPDIR": str(folder),
                "RAY_JOB_CONFIG_JSON_ENV_VAR": json.dumps(job),
                "OMP_WAIT_POLICY": "active",
            },
            capture_output=True,
            text=True,
            timeout=LONGEST_WAIT,
            check=False,
        )
        yield Joined(done.stdout.splitlines(), done.stderr, encoded)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_workers_run_the_drivers_code_also_on_nodes_that_join_later(joined: Joined) -> None:
    of_node = (False, "kept", "active")
    said = [str([of_node]), str([of_node, of_node])]
    assert joined.lines[:2] == said, joined.errors


def test_two_nodes_write_the_bytes_of_one_process(tiny_corpus: Corpus, joined: Joined) -> None:
    assert "2 nodes" in joined.lines, joined.errors
    # Which loads torch and the model once.
    assert "1 process on the GPU" in joined.lines
    # All of them, as it may be given another than the one that it has opened; and has all else that
    # workers have.
    assert (
        "one process where there are several, which sees None 1 False kept active" in joined.lines
    )
    for name in ("train.json", *read_header(joined.encoded, "train")["files"]):
        assert (joined.encoded / name).read_bytes() == (tiny_corpus.encoded / name).read_bytes()
