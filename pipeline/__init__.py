"""DVC stages: each module reads files, calls the library and writes files.

Run from the project's folder, as `python -m pipeline.<stage>`.
"""
