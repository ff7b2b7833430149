"""One Ray of two CPUs for all tests here, and a small corpus on disk."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

# Sets what Ray reads when it is imported.
from seq2sweep.cluster import session  # isort: skip
import ray

from seq2sweep.config import ClusterConfig


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with clusters that they end themselves come last of all.

    Ray keeps a process that has talked to one in contact with it, and ends that process when it has
    been gone for a minute and is asked for.
    """

    def ends_a_cluster(item: pytest.Item) -> bool:
        fixtures = getattr(item, "fixturenames", ())
        # The count of kills comes after them.
        return bool({"machines", "nodes"} & {*fixtures}) or item.name.startswith("test_there_were")

    items.sort(key=ends_a_cluster)


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """`ray_session` inside of tests finds this one and leaves it running."""
    folder = tempfile.mkdtemp(prefix="s2s-test-", dir="/tmp")
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=session.OBJECT_STORE_BYTES,
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
        workers=2,
        min_workers=None,
        cpus_per_worker=None,
        gpus_per_worker=0,
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
