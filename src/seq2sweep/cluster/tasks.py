"""The same work on many chunks, as tasks of a Ray cluster: a `seq2sweep.parallel.Mapper`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import ray
from ray.exceptions import RayTaskError

from seq2sweep.cluster.session import nodes, places, ray_session
from seq2sweep.config import ClusterConfig
from seq2sweep.parallel import Mapper, in_order

CHANGES_NO_RESULT = "where work is done that is shared out"

T = TypeVar("T")
R = TypeVar("R")


def ray_tasks(function: Callable[[T], R], items: Iterable[T], gpus: int = 0) -> Iterator[R]:
    """Results in the order of the items, each by a task of one CPU and so many GPUs on any node.

    Needs a Ray session. The chunks travel through Ray, so that the nodes need no shared storage;
    a task whose node is lost runs again elsewhere. An exception of the function is raised here.
    """
    shared = ray.put(function)
    workers = max(1, places(nodes(), cpus=1, gpus=gpus))
    task = ray.remote(num_cpus=1, num_gpus=gpus, scheduling_strategy="SPREAD")(_apply)
    try:
        yield from in_order(lambda item: task.remote([shared], item).future(), items, workers)
    except RayTaskError as error:
        raise error.cause from None


def ray_tasks_on_gpus(function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """As `ray_tasks`, with a GPU a task where the cluster has any."""
    return ray_tasks(function, items, gpus=int(any(node.gpus >= 1 for node in nodes())))


@contextlib.contextmanager
def ray_mapper(cluster: ClusterConfig) -> Iterator[Mapper]:
    """`ray_tasks_on_gpus` in a Ray session of its own."""
    with ray_session(cluster):
        yield ray_tasks_on_gpus


_functions: dict[str, Callable[[Any], Any]] = {}


def _apply(shared: list[ray.ObjectRef[Any]], item: Any) -> Any:
    # In a list, Ray hands over the reference instead of reading the function anew for every chunk.
    (reference,) = shared
    function = _functions.get(reference.hex())
    if function is None:
        _functions.clear()
        function = _functions[reference.hex()] = ray.get(reference)
    return function(item)
