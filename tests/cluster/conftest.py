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
        cpus_per_worker=None,
        gpus_per_worker=0,
        storage="runs",
        max_failures=3,
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """An empty project folder."""
    return tmp_path
