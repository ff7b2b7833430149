"""What Ray's control service (GCS) knows of this job's actors and placement groups.

Ray's public functions do not say whose a placement group is, so its tables are read here.
"""

from __future__ import annotations

from typing import Any

import ray
from ray.core.generated import gcs_pb2
from ray.util.placement_group import PlacementGroup, remove_placement_group

CHANGES_NO_RESULT = "how the end of Ray is noticed"

ALIVE = gcs_pb2.ActorTableData.ALIVE
DEAD = gcs_pb2.ActorTableData.DEAD
CREATED = gcs_pb2.PlacementGroupTableData.CREATED
REMOVED = gcs_pb2.PlacementGroupTableData.REMOVED


def remove_orphans() -> int:
    """Remove this job's placement groups whose creator is dead; gives how many there were.

    Ray Train's controller makes one for its workers. When it is killed Ray keeps the group, and
    with it the CPUs, until the driver ends: the next controller would wait for them for ever.
    """
    orphans = [
        group
        for group in _groups()
        if group.creator_actor_id and _state(group.creator_actor_id) == DEAD
    ]
    for group in orphans:
        remove_placement_group(PlacementGroup(ray.PlacementGroupID(group.placement_group_id)))
    return len(orphans)


def has_room(controller: str) -> bool:
    """Whether the actor with this id (hex) has got a placement group, so waits for none."""
    return any(
        group.creator_actor_id.hex() == controller and group.state == CREATED for group in _groups()
    )


def live_workers(controller: str) -> int:
    """The training workers of the actor with this id (hex) that have started and live."""
    owner = _actor(bytes.fromhex(controller))
    if owner is None:
        return 0
    table = _accessor().get_actor_table(_job(), "ALIVE")
    actors = map(gcs_pb2.ActorTableData.FromString, table)
    return sum(
        actor.class_name == "RayTrainWorker"
        and actor.owner_address.worker_id == owner.address.worker_id
        for actor in actors
    )


def _groups() -> list[Any]:
    """The placement groups of this job that are there or asked for."""
    table = _accessor().get_placement_group_table()
    groups = map(gcs_pb2.PlacementGroupTableData.FromString, table)
    job = _job().binary()
    return [group for group in groups if group.creator_job_id == job and group.state != REMOVED]


def _state(actor: bytes) -> Any:
    found = _actor(actor)
    return DEAD if found is None else found.state


def _actor(actor: bytes) -> Any:
    found = _accessor().get_actor_info(ray.ActorID(actor))
    return None if found is None else gcs_pb2.ActorTableData.FromString(found)


def _job() -> Any:
    return ray._private.worker.global_worker.current_job_id


def _accessor() -> Any:
    return ray._private.state.state._connect_and_get_accessor()
