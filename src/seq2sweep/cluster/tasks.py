"""Tasks of a Ray cluster: the same work on many chunks, and questions to each of its nodes."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import ray
import torch
from ray.exceptions import OutOfMemoryError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from seq2sweep import console
from seq2sweep.cluster.failures import LOWER_SEARCH, describe
from seq2sweep.cluster.session import (
    ALIVE_SECONDS,
    Node,
    lack_of_room,
    nodes,
    places,
    ray_session,
    require_alive,
)
from seq2sweep.config import ClusterConfig
from seq2sweep.errors import OperationalError
from seq2sweep.hardware import memory_by
from seq2sweep.parallel import Mapper, in_order

CHANGES_NO_RESULT = "where work is done that is shared out"

LOWER_TASK = f"free some on that node, or where it translates {LOWER_SEARCH}"
ANSWER_SECONDS = 30.0
"""How long nodes may take for an answer."""

T = TypeVar("T")
R = TypeVar("R")


def ray_tasks(function: Callable[[T], R], items: Iterable[T], gpus: int = 0) -> Iterator[R]:
    """Results in the order of the items, each by a task of one CPU and so many GPUs on any node.

    A `seq2sweep.parallel.Mapper`. Needs a Ray session. The chunks travel through Ray, so that the
    nodes need no shared storage; a task whose node is lost runs again elsewhere. An exception of
    the function is raised here, with a note of where it happened. Raises RayDiedError when Ray
    ends; says what it waits for while there is no room for a task.
    """
    shared = ray.put(function)
    machines = nodes()
    workers = max(1, places(machines, cpus=1, gpus=gpus))
    # By default Ray ends the process of a task with a GPU after one call, and the next one loads
    # torch, CUDA and the model anew. 0: a process is used again.
    options: dict[str, Any] = {"max_calls": 0}
    if gpus and any(node.gpus > 1 for node in machines):
        # It may be given another GPU than before, and can only turn to one that it saw when it
        # opened the first: it sees all, and `_use_own_gpu` takes the task's.
        options["runtime_env"] = {"env_vars": {"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"}}
    task = ray.remote(num_cpus=1, num_gpus=gpus, scheduling_strategy="SPREAD", **options)(_apply)
    wait = _Wait(task.remote([], None).future(), gpus)
    try:
        yield from in_order(lambda item: task.remote([shared], item).future(), items, workers, wait)
    except RayTaskError as error:
        error.cause.add_note(f"in a task of Ray:\n{error}")
        raise error.cause from None
    except OutOfMemoryError as error:  # Ray's monitor ended it
        raise OperationalError(describe(error, lower=LOWER_TASK)) from None


class _Wait:
    """Waits for a task, and looks meanwhile whether Ray lives and has room for one."""

    def __init__(self, first: concurrent.futures.Future[None], gpus: int) -> None:
        """first: of the tasks in Ray's queue, done at once when it has found room; gpus: that each
        asks for."""
        self.first, self.gpus = first, gpus

    def __call__(self, task: concurrent.futures.Future[Any]) -> None:
        usual = console.doing_now()
        while not concurrent.futures.wait([task], timeout=ALIVE_SECONDS).done:
            # Else Ray would block this thread, and then end the process.
            if require_alive.answers():
                console.doing(self._lack() or usual)
        console.doing(usual)

    def _lack(self) -> str | None:
        """What is waited for; what is free says nothing when tasks of this call have taken it."""
        if self.first.done() and places(nodes(), cpus=1, gpus=self.gpus):
            return None
        return lack_of_room(f"a task of 1 CPU and {self.gpus} GPUs", 1, 1, self.gpus, None)


class _OnGpus:
    """As `ray_tasks`, with a GPU a task where the cluster has any."""

    def __call__(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        return ray_tasks(function, items, _gpus_of_task(nodes()))

    def places(self) -> int:
        """Tasks that the cluster has room for at once."""
        machines = nodes()
        return places(machines, cpus=1, gpus=_gpus_of_task(machines))


def _gpus_of_task(machines: list[Node]) -> int:
    return int(any(node.gpus >= 1 for node in machines))


ray_tasks_on_gpus = _OnGpus()


@contextlib.contextmanager
def ray_mapper(cluster: ClusterConfig) -> Iterator[Mapper]:
    """`ray_tasks_on_gpus` in a Ray session of its own."""
    with ray_session(cluster):
        yield ray_tasks_on_gpus


_functions: dict[tuple[str, int | None], Callable[[Any], Any]] = {}
"""The last function that this process has got, by its reference and the GPU that has its model."""


def _apply(shared: list[ray.ObjectRef[Any]], item: Any) -> Any:
    if not shared:  # asked only whether there is room
        return None
    # In a list, Ray hands over the reference instead of reading the function anew for every chunk.
    (reference,) = shared
    key = reference.hex(), _use_own_gpu()
    function = _functions.get(key)
    if function is None:
        _functions.clear()
        _return_unused()  # on a GPU that is another task's now
        function = _functions[key] = ray.get(reference)
    try:
        return function(item)
    finally:
        _return_unused()  # the driver may compute on this GPU when all are done


def _use_own_gpu() -> int | None:
    """Make the first GPU that Ray has given this task the one that "cuda" means; its number among
    those that this process sees, None without any."""
    given = [str(one) for one in ray.get_gpu_ids()]
    if given and given[0].startswith("MIG-") and not torch.cuda.is_initialized():
        # Of parts of a GPU CUDA shows a process one alone, which it has from now on.
        os.environ["CUDA_VISIBLE_DEVICES"] = given[0]
    if not given or not torch.cuda.is_available():
        return None
    # Ray counts from 0, but names those of a node on which this is set as it does.
    seen = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if seen.startswith("MIG-"):
        number = 0
    else:
        number = seen.split(",").index(given[0]) if seen else int(given[0])
    number %= torch.cuda.device_count()  # Ray may have been told of more than there are
    with memory_by(LOWER_TASK):
        torch.cuda.set_device(number)
    return number


def _return_unused() -> None:
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


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
