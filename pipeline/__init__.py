"""DVC stages: each module reads files, calls the library and writes files.

Run from the project's folder, as `python -m pipeline.<stage>`.
"""

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
