"""Shared by all tests: one compute thread, a tiny encoded corpus, and a disk that is soon full."""

from __future__ import annotations

import functools
import itertools
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Threads that wait for each other must not spin meanwhile: several tests run beside each other, and
# a fixture of five seconds takes eighty. It is read when torch is loaded, here and in children.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Ray gives way to all else on a machine (nice 15): beside three busy processes its workers took
# minutes to start. Read when Ray starts.
os.environ.setdefault("RAY_worker_niceness", "0")

import hypothesis
import pytest
import torch
from xdist.scheduler import LoadScopeScheduling

from seq2sweep import config as configuration
from seq2sweep import presets
from seq2sweep.config import ClusterConfig, Config
from seq2sweep.data import bitext, vocabulary
from seq2sweep.data.files import write_header, write_lines

# A shell starts background jobs with Ctrl-C ignored, and the programs tested here would inherit it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine takes long for a first example, which says nothing about the code.
hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.register_profile("thorough", deadline=None)
hypothesis.settings.load_profile("any machine")

ON_ONE_RAY = (
    "tests/cluster/test_bucket_sweep.py",
    "tests/cluster/test_bucket_training.py",
    "tests/cluster/test_chaos.py",
    "tests/cluster/test_deaths.py",
    "tests/cluster/test_doctor.py",
    "tests/cluster/test_failures.py",
    "tests/cluster/test_lost_trials.py",
    "tests/cluster/test_search_on_ray.py",
    "tests/cluster/test_session.py",
    "tests/cluster/test_tasks.py",
    "tests/cluster/test_train_driver.py",
    "tests/cluster/test_tune_runner.py",
)
"""All in one process, which starts the Ray of the fixture `cluster` once."""
FROM_ONE_FORK_SERVER = (
    "tests/paper/test_cost.py",
    "tests/paper/test_loop.py",
    "tests/paper/test_update.py",
    "tests/runs/test_pass_size.py",
    "tests/train/test_distributed.py",
    "tests/train/test_interruption.py",
)
"""All in one process, which starts the one that `processes.forking` forks from once."""

# Also while fixtures of a module or the session are made: sums do not depend on who makes them.
torch.set_num_threads(1)

WORDS = ["alpha", "beta", "gamma", "delta", "eins", "zwei", "drei", "vier", "rot", "grün", "gelb"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--thorough", action="store_true", help="leave out nothing: make thorough")


def pytest_configure(config: pytest.Config) -> None:
    """Who sets a number of examples asks for this profile's name: there may be time for more."""
    if config.getoption("--thorough"):
        hypothesis.settings.load_profile("thorough")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Share tests out one by one, but keep those in one process that share what is slow to make:
    those of a file with fixtures of its own, and all on one Ray.

    The mark xdist_group of pytest-xdist 3.8 has no effect with pytest 9.2.
    """

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::")[0]
            if file in ON_ONE_RAY:
                return "on one Ray"
            if file in FROM_ONE_FORK_SERVER:
                return "from one fork server"
            return file if shares(file) else nodeid

    @functools.cache
    def shares(file: str) -> bool:
        return 'scope="module"' in (config.rootpath / file).read_text(encoding="utf-8")

    return Scheduling(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest tests, whose subjects others look at more briefly, only if asked for."""
    if not config.getoption("--thorough"):
        for item in items:
            if item.get_closest_marker("thorough"):
                item.add_marker(pytest.mark.skip("takes minutes: make thorough"))


@pytest.fixture(scope="session")
def thorough(request: pytest.FixtureRequest) -> bool:
    """Whether there is time for more of the same."""
    return bool(request.config.getoption("--thorough"))


@pytest.fixture(scope="session", autouse=True)
def _no_power_fails() -> Iterator[None]:
    """Processes are killed here and disks are full: what they wrote before need not be flushed, and
    a disk takes milliseconds for each time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(autouse=True)
def _usual_bootstrap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@dataclass(frozen=True)
class Corpus:
    """Folders of a tiny corpus whose target is its source in upper case."""

    clean: Path
    vocabulary: Path
    encoded: Path
    size: int


def write_encoded(
    folder: Path,
    split: str,
    source: Sequence[str],
    target: Sequence[str],
    pieces: vocabulary.Vocabulary,
) -> dict[str, Any]:
    """Encode lines into a split of an encoded folder; returns its header."""
    texts = {}
    for side, lines in (("source", source), ("target", target)):
        texts[side] = folder / f"{split}.{side}.text"
        write_lines(texts[side], lines)
    return bitext.write_split(folder, split, texts, pieces, {"source": "en", "target": "de"})


@pytest.fixture(scope="session")
def tiny_config() -> Config:
    """A model that trains in seconds."""
    return configuration.with_changes(
        presets.load("phrasebook").config,
        {
            "vocabulary.size": 90,
            "model.layers": 1,
            "model.d_model": 32,
            "model.d_ff": 64,
            "model.heads": 2,
            "model.d_k": 16,
            "model.d_v": 16,
            "train.steps": 12,
            "train.tokens_per_update": 300,
            "train.tokens_per_pass": 300,
            "train.warmup_steps": 30,
            "train.precision": "float32",
            "train.log_every": 2,
            "train.validate_every": 4,
            "train.checkpoint_every": 4,
            "train.keep_checkpoints": 2,
            "evaluate.average_checkpoints": 2,
            "sweep.base": {},
            "sweep.scheduler": "asha",
        },
    )


@pytest.fixture(scope="session")
def tiny_corpus(tmp_path_factory: pytest.TempPathFactory, tiny_config: Config) -> Corpus:
    """400 training pairs, 40 for validation and test each."""
    root = tmp_path_factory.mktemp("corpus")
    clean, encoded = root / "clean", root / "encoded"
    clean.mkdir()
    encoded.mkdir()
    draw = random.Random(0)
    lines = {
        split: [" ".join(draw.choices(WORDS, k=draw.randint(1, 8))) for _ in range(count)]
        for split, count in (("train", 400), ("valid", 40), ("test", 40))
    }
    sides = {
        (split, side): [line if side == "source" else line.upper() for line in content]
        for split, content in lines.items()
        for side in ("source", "target")
    }
    for (split, side), content in sides.items():
        write_lines(clean / f"{split}.{side}.txt", content)
    for split, content in lines.items():
        write_header(clean, split, len(content))
    text = sides["train", "source"] + sides["train", "target"]
    model = vocabulary.train(text, tiny_config.vocabulary)
    (root / "vocabulary").mkdir()
    (root / "vocabulary" / vocabulary.MODEL_NAME).write_bytes(model)
    pieces = vocabulary.Vocabulary.open(root / "vocabulary")
    for split in lines:
        write_encoded(encoded, split, sides[split, "source"], sides[split, "target"], pieces)
    return Corpus(clean, root / "vocabulary", encoded, len(pieces))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own of 500 kB: one checkpoint of the tiny model and a half."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=500k", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, stderr=subprocess.PIPE).returncode:
        pytest.skip("no file system may be mounted here")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@pytest.fixture(scope="session")
def s3_environment() -> dict[str, str]:
    """The environment of whoever uses `bucket`; Ray's nodes get theirs before the server starts."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@pytest.fixture(scope="session")
def s3_server(s3_environment: dict[str, str]) -> Iterator[None]:
    """An S3 server in this process."""
    from moto.server import ThreadedMotoServer

    _, _, port = s3_environment["AWS_ENDPOINT_URL"].rpartition(":")
    server = ThreadedMotoServer("127.0.0.1", int(port), verbose=False)
    server.start()
    yield
    server.stop()


_numbers = itertools.count()


@pytest.fixture
def bucket(s3_server: None, s3_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of an empty place in a bucket of its own."""
    for name, value in s3_environment.items():
        monkeypatch.setenv(name, value)
    import boto3

    # No other process of tests has this address, and with it the folder that a node has for it.
    name = f"bucket-{os.getpid()}-{next(_numbers)}"
    boto3.client("s3").create_bucket(Bucket=name)
    return f"s3://{name}/some/place"


@pytest.fixture
def local() -> ClusterConfig:
    """Two workers on this machine."""
    return ClusterConfig(
        address=None,
        job_server=None,
        job_environment=(),
        workers=2,
        min_workers=None,
        cpus_per_worker=None,
        gpus_per_worker=0,
        fsdp=False,
        storage="runs",
        max_failures=3,
        hang_seconds=600,
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """An empty project folder."""
    return tmp_path


@pytest.fixture
def temporary() -> Iterator[Path]:
    """An empty folder with a path that is short enough for Ray's sockets."""
    folder = Path(tempfile.mkdtemp(prefix="s2s-test-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def cluster(s3_environment: dict[str, str]) -> Iterator[None]:
    """`ray_session` inside of tests finds this one and leaves it running."""
    # Sets what Ray reads when it is imported.
    from seq2sweep.cluster import reaper
    from seq2sweep.cluster.local_cluster import OBJECT_STORE_BYTES  # isort: skip
    import ray

    folder = tempfile.mkdtemp(prefix="s2s-test-", dir="/tmp")
    watching = reaper.start(folder)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in s3_environment.items():
            patch.setenv(name, value)
        patch.setenv(reaper.MARK, folder)
        ray.init(
            address="local",
            num_cpus=2,
            include_dashboard=False,
            object_store_memory=OBJECT_STORE_BYTES,
            logging_level="ERROR",
            log_to_driver=False,
            _temp_dir=folder,
        )
    yield
    ray.shutdown()
    # Ray's own end leaves a worker behind now and then, which hung as it left.
    reaper.finish(watching, folder)
