"""DVC stages: each module reads files, calls the library and writes files.

Run from the project's folder, as `python -m pipeline.<stage>`.
"""

from seq2sweep.console import quiet_environment

# Python imports this before the stage, and so before the libraries that read the environment.
quiet_environment()
