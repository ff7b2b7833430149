"""One Ray of two CPUs for all tests here, and a small corpus on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# Sets what Ray reads when it is imported.
import seq2sweep.cluster  # noqa: F401  isort: skip
from ray.cluster_utils import Cluster

from seq2sweep.config import Config
from tests.cluster.chaos import end
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


@pytest.fixture
def make_stage(
    tiny_corpus: Corpus, project: Path, temporary: Path
) -> Iterator[Callable[[str, Config], SweepStage]]:
    stages: list[SweepStage] = []

    def make(name: str, config: Config) -> SweepStage:
        stages.append(SweepStage(project / name, config, tiny_corpus, temporary))
        return stages[-1]

    yield make
    end(*stages)


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
