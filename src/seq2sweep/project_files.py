"""Where the files of a project lie, in its folder."""

from __future__ import annotations

from pathlib import Path

CHANGES_NO_RESULT = "where files lie: what is in them has sums of its own"

PARAMS = Path("params.yaml")
RAW = Path("data/raw")
CLEAN = Path("data/clean")
VOCABULARY = Path("data/vocabulary")
ENCODED = Path("data/encoded")
MODEL = Path("models/train")
TEACHER = Path("models/teacher")
SILVER = Path("models/silver")
SILVER_ENCODED = SILVER / "encoded"
STUDENT = Path("models/student")
METRICS = Path("metrics")
EVALUATED = METRICS / "evaluate.json"
STUDENT_EVALUATED = METRICS / "semi_supervised.json"
REPORTS = Path("reports")
TRANSLATIONS = REPORTS / "translations.tsv"
SWEEP = REPORTS / "sweep.json"
