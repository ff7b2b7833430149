"""Python runs this in every process whose PYTHONPATH has this folder: it counts updates.

Each update that a training loop begins leaves a line in the file $COUNT_UPDATES: the learning rate
scale, which is what tells the trials apart here, and the step.
"""

from __future__ import annotations

import os
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any


class _Counting(MetaPathFinder):
    """Finds the module of the loop as Python does, and counts from then on."""

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> Any:
        if name != "seq2sweep.train.loop":
            return None
        spec = PathFinder.find_spec(name, path, target)
        assert spec is not None
        assert spec.loader is not None
        execute = spec.loader.exec_module

        def execute_and_count(module: ModuleType) -> None:
            execute(module)
            _count(module._Training)

        spec.loader.exec_module = execute_and_count  # type: ignore[method-assign]
        return spec


def _count(training: Any) -> None:
    update = training._update
    file = os.open(os.environ["COUNT_UPDATES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def counted(self: Any, ids: Any) -> Any:
        scale, step = self.config.train.learning_rate_scale, self.progress.step + 1
        os.write(file, f"{scale!r} {step}\n".encode())
        return update(self, ids)

    training._update = counted


sys.meta_path.insert(0, _Counting())
