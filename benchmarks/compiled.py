"""Contenders whose layers are compiled: `python -m benchmarks.compiled NAME FOLDER ...`, as
benchmarks.contenders has the others."""

from __future__ import annotations

from typing import Any
from unittest import mock

from benchmarks import contenders, handwritten
from benchmarks.sizes import Size


def ours_compiled(size: Size, precision: contenders.Precision) -> contenders.Update:
    """`contenders.ours` with `train.compile`."""
    import torch

    from seq2sweep.model import building
    from seq2sweep.train import compiled

    eager = building.build

    def build(*arguments: Any) -> Any:
        model = eager(*arguments)
        compiled.compile_layers(model, torch.device("cpu"))
        return model

    with mock.patch.object(building, "build", build):
        return contenders.ours(size, precision)


def hand_compiled(size: Size, precision: contenders.Precision) -> contenders.Update:
    """`handwritten.hand`, its layers compiled in the same way: all of it as one graph is slower."""

    class Compiled(handwritten.Handwritten):
        def __init__(self, size: Size) -> None:
            super().__init__(size)
            for layer in (*self.encoder, *self.decoder):
                layer.compile(dynamic=True)

    with mock.patch.object(handwritten, "Handwritten", Compiled):
        return handwritten.hand(size, precision)


if __name__ == "__main__":
    for made in (ours_compiled, hand_compiled):
        contenders.MAKERS[made.__name__] = "benchmarks.compiled"
    contenders.main()
