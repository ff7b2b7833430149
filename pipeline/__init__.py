"""DVC stages: each module reads files, calls the library and writes files.

Run from the project's folder, as `python -m pipeline.<stage>`.
"""

import gc
import importlib.util
import sys
from pathlib import Path

# The library beside the stages, not that which this Python has installed: in a git worktree, and
# where `dvc exp run --temp` or a queue of DVC runs them, it is of another folder.
own = Path(__file__).parents[1] / "src"
if (own / "seq2sweep").is_dir():
    sys.path.insert(0, str(own))

try:
    from seq2sweep.console import quiet_environment

    for package in ("numpy", "sentencepiece", "torch", "ray", "mlflow"):  # not imported yet
        if importlib.util.find_spec(package) is None:
            raise ModuleNotFoundError(name=package)
except ModuleNotFoundError as missing:
    print(
        f"seq2sweep: {sys.executable} has no module {missing.name}: call `make install`, then "
        "`. .venv/bin/activate`",
        file=sys.stderr,
    )
    sys.exit(2)

# Python imports this before the stage, and so before the libraries that read the environment.
quiet_environment()
if sys.argv[0] == "-m":  # a stage starts, and is not imported by something else
    # Libraries make a million objects and no garbage, which takes a second to find out.
    # `stage.run` enables it.
    gc.disable()
