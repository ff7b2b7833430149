"""A question to every node of the cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

CHANGES_NO_RESULT = "how the same files come to a node"

T = TypeVar("T")

PATIENCE = 30.0


def on_all_nodes(question: Callable[..., T], *about: Any) -> list[T]:
    """The answers of all nodes that give one within PATIENCE seconds.

    question: a function of an importable module.
    """
    asked = [ask(node["NodeID"], question, *about) for node in ray.nodes() if node["Alive"]]
    answers = []
    for answered in ray.wait(asked, num_returns=len(asked), timeout=PATIENCE)[0]:
        with contextlib.suppress(ray.exceptions.RayError):
            answers.append(ray.get(answered))
    return answers


def ask(node: str, question: Callable[..., Any], *about: Any) -> ray.ObjectRef[Any]:
    """Have a node, named by Ray's id, answer a question."""
    there = NodeAffinitySchedulingStrategy(node, soft=False)
    task = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=there)(question)
    return task.remote(*about)
