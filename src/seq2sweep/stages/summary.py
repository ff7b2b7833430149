"""The end of `make reproduce`: the score, the table and where to look further. Changes nothing."""

from __future__ import annotations

from pathlib import Path

from seq2sweep import console, project_files
from seq2sweep.config import Config
from seq2sweep.evaluate.scores_in_words import in_words
from seq2sweep.paths import read_json
from seq2sweep.stages import stage


def work(config: Config) -> None:
    train = read_json(project_files.METRICS / "train.json")
    evaluation = read_json(project_files.EVALUATED)
    parsing = config.data.task == "parsing"
    console.say("\n" + _beginning("table3.md", "\n## "))
    if parsing:
        console.say("\n" + _beginning("table4.md", "\n## As printed"))
    console.say(
        f"\n{config.data.dataset} {config.data.source}-{config.data.target} · "
        f"{train['parameters'] / 1e6:.2f}M parameters · {train['steps']} steps in "
        f"{console.duration(train['wall_seconds'])} · "
        f"{train['tokens_per_second']:,.0f} target tokens/s"
    )
    console.say(in_words(evaluation))
    from seq2sweep.tracking.mlflow_store import compare_page  # here: MLflow takes seconds to load

    table = "table4.md" if parsing else "table3.md"
    console.say(
        f"\nLook at        reports/index.html (all of it), reports/{table}, "
        "reports/translations.tsv"
        f"\nCompare runs   make ui   then {compare_page(config, Path.cwd()) or 'what it prints'}"
    )


def _beginning(name: str, end: str) -> str:
    """Of a table in Markdown, what stands before `end`."""
    return (project_files.REPORTS / name).read_text(encoding="utf-8").partition(end)[0].strip()


if __name__ == "__main__":
    stage.run("summary", "what came out", work)
