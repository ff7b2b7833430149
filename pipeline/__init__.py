"""DVC stages: each module reads files, calls the library and writes files.

Run from the project's folder, as `python -m pipeline.<stage>`.
"""

import gc
import sys

try:
    from seq2sweep.console import quiet_environment
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
