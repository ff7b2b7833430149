"""Ray Train's trainer with a controller that its driver knows and can end."""

from __future__ import annotations

import contextlib
from typing import Any

import ray
from ray.train.torch import TorchTrainer
from ray.train.v2._internal.callbacks import DatasetsCallback
from ray.train.v2._internal.callbacks.placement_group_callback import (
    PlacementGroupCleanerCallback,
)
from ray.train.v2._internal.constants import get_env_vars_to_propagate
from ray.train.v2._internal.execution.controller import TrainController
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from seq2sweep.cluster import gcs, session
from seq2sweep.config import ClusterConfig

CHANGES_NO_RESULT = "how workers are asked for"


class RayTrainer(TorchTrainer):  # type: ignore[misc]
    """Without actors that take seconds to start and have nothing to do: the one for Ray's data sets
    and, in a Ray that ends with this process, the one that clears up on a cluster after a driver.
    """

    def __init__(self, cluster: ClusterConfig, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        own = session.address_of(cluster) is None
        self.idle = (DatasetsCallback, *([PlacementGroupCleanerCallback] if own else []))
        self._controller: Any = None

    @property
    def controller(self) -> str | None:
        """Ray's id (hex) of the actor that coordinates the workers; None before it is made."""
        return None if self._controller is None else str(self._controller._actor_id.hex())

    def give_up(self) -> None:
        """End the workers, whatever they or Ray wait for; `fit` raises then."""
        if self._controller is not None:
            with contextlib.suppress(ray.exceptions.RayError):
                ray.kill(self._controller)
        gcs.remove_orphans()

    def _create_default_callbacks(self) -> list[Any]:
        made: list[Any] = super()._create_default_callbacks()
        return [callback for callback in made if not isinstance(callback, self.idle)]

    def _initialize_and_run_controller(self, **settings: Any) -> Any:
        """As Ray's, which keeps its controller to itself, and Ctrl-C as well."""
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        variables = {"RAY_WARN_BLOCKING_GET_INSIDE_ASYNC": "0"} | get_env_vars_to_propagate()
        actor = ray.remote(
            num_cpus=0, scheduling_strategy=here, runtime_env={"env_vars": variables}
        )(TrainController)
        self._controller = actor.remote(**settings)
        ray.get(self._controller.run.remote())
        return ray.get(self._controller.get_result.remote())
