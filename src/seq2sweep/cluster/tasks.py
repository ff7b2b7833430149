"""Tasks of a Ray cluster: the same work on many chunks, and questions to each of its nodes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from seq2sweep.cluster.session import nodes, places
from seq2sweep.parallel import in_order

CHANGES_NO_RESULT = "where work is done that is shared out"

ANSWER_SECONDS = 30.0
"""How long nodes may take for an answer."""

T = TypeVar("T")
R = TypeVar("R")


def ray_tasks(function: Callable[[T], R], items: Iterable[T], gpus: int = 0) -> Iterator[R]:
    """Results in the order of the items, each by a task of one CPU and so many GPUs on any node.

    A `seq2sweep.parallel.Mapper`. Needs a Ray session. The chunks travel through Ray, so that the
    nodes need no shared storage; a task whose node is lost runs again elsewhere. An exception of
    the function is raised here.
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


_functions: dict[str, Callable[[Any], Any]] = {}


def _apply(shared: list[ray.ObjectRef[Any]], item: Any) -> Any:
    # In a list, Ray hands over the reference instead of reading the function anew for every chunk.
    (reference,) = shared
    function = _functions.get(reference.hex())
    if function is None:
        _functions.clear()
        function = _functions[reference.hex()] = ray.get(reference)
    return function(item)


def on_all_nodes(question: Callable[..., R], *about: Any) -> list[R]:
    """The answers of all nodes that give one within ANSWER_SECONDS.

    question: a function of an importable module.
    """
    asked = [on_node(node["NodeID"], question, *about) for node in ray.nodes() if node["Alive"]]
    answers = []
    for answered in ray.wait(asked, num_returns=len(asked), timeout=ANSWER_SECONDS)[0]:
        with contextlib.suppress(RayError):
            answers.append(ray.get(answered))
    return answers


def on_node(node: str, question: Callable[..., Any], *about: Any) -> ray.ObjectRef[Any]:
    """Have a node, named by Ray's id, answer a question."""
    there = NodeAffinitySchedulingStrategy(node, soft=False)
    task = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=there)(question)
    return task.remote(*about)
