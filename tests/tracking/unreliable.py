"""A store that fails when a test wants it to, and what the store has of an outbox."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from seq2sweep.tracking.mlflow_store import Experiment

READS = ("get_", "search_", "list_")


def failing(at: str, error: BaseException) -> Callable[[str], None]:
    """The fate of a store at which each call of one name fails, before it has done anything."""

    def fate(call: str) -> None:
        if call == at:
            raise error

    return fate


class Killed(BaseException):
    """Stands for SIGKILL: nothing in the code under test catches it."""


class Unreliable:
    """A client that asks `fate` before and after each call."""

    def __init__(self, client: Any, fate: Callable[[str], None]) -> None:
        self._client, self._fate = client, fate

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._client, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self._fate(name)
            answer = real(*args, **kwargs)
            if not name.startswith(READS):
                self._fate(name)
            return answer

        return call


def runs(experiment: Experiment, name: str) -> list[Any]:
    return experiment.search(f"tags.`seq2sweep.key` LIKE '{name}.%'")


def steps(experiment: Experiment, run: Any, key: str = "train/loss") -> list[int]:
    return [m.step for m in experiment.client.get_metric_history(run.info.run_id, key)]
