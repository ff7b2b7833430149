"""One Ray of two CPUs for all tests here, and a small corpus on disk."""

from __future__ import annotations

import itertools
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

# Sets what Ray reads when it is imported.
from seq2sweep.cluster.local import OBJECT_STORE_BYTES  # isort: skip
import ray
from ray.cluster_utils import Cluster

from seq2sweep.config import ClusterConfig, Config
from tests.cluster.sweeps import SweepStage
from tests.conftest import Corpus


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with clusters that they end themselves come last of all.

    Ray keeps a process that has talked to one in contact with it, and ends that process when it has
    been gone for a minute and is asked for.
    """

    def ends_a_cluster(item: pytest.Item) -> bool:
        if item.path.name == "test_two_nodes.py":
            return False  # pytest's own process has no part in theirs
        fixtures = getattr(item, "fixturenames", ())
        # The count of kills comes after them.
        return bool({"machines", "nodes"} & {*fixtures}) or item.name.startswith("test_there_were")

    items.sort(key=ends_a_cluster)


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
    name = f"bucket-{next(_numbers)}"
    boto3.client("s3").create_bucket(Bucket=name)
    return f"s3://{name}/some/place"


@pytest.fixture(scope="session")
def cluster(s3_environment: dict[str, str]) -> Iterator[None]:
    """`ray_session` inside of tests finds this one and leaves it running."""
    folder = tempfile.mkdtemp(prefix="s2s-test-", dir="/tmp")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in s3_environment.items():
            patch.setenv(name, value)
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
    shutil.rmtree(folder, ignore_errors=True)


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


@pytest.fixture
def make_stage(
    tiny_corpus: Corpus, project: Path, temporary: Path
) -> Iterator[Callable[[str, Config], SweepStage]]:
    stages: list[SweepStage] = []

    def make(name: str, config: Config) -> SweepStage:
        stages.append(SweepStage(project / name, config, tiny_corpus, temporary))
        return stages[-1]

    yield make
    for stage in stages:
        stage.kill()


@pytest.fixture
def machines(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A head without room for workers, and two machines with room for one each."""
    # It would have every `ray.init` of this computer join the cluster.
    monkeypatch.setattr("ray._private.utils.write_ray_address", lambda address: None)
    made = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 0,
            "temp_dir": str(temporary),
            "include_dashboard": False,
            "_system_config": {"health_check_period_ms": 500, "health_check_failure_threshold": 3},
        },
    )
    for _ in range(2):
        made.add_node(num_cpus=1)
    yield made
    for node in made.list_all_nodes():
        made.remove_node(node, allow_graceful=False)
