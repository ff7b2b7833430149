"""Kernels in Triton, where there is no GPU: interpreted on a CPU, and compiled for GPUs."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None,
    reason="triton is not installed: .ci/run installs it",
)


def require_interpreted(*tests: Path) -> None:
    """Files of tests pass in a process of their own, in which kernels are interpreted."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *map(str, tests)],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[:9000] + done.stderr[-1000:]


def compiled(
    kernel: Any,
    types: Mapping[str, str],
    constants: dict[str, Any],
    capability: int,
    **options: int,
) -> Any:
    """For GPUs of a capability; types: of arguments that are neither constants nor int32."""
    import triton
    from triton.backends.compiler import GPUTarget

    signature = {
        name: "constexpr" if name in constants else types.get(name, "i32")
        for name in kernel.arg_names
    }
    source = triton.compiler.ASTSource(fn=kernel, signature=signature, constexprs=constants)
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
