"""The end of `make reproduce`: the score, the table and where to look further. Changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seq2sweep import console
from seq2sweep.config import Config
from seq2sweep.evaluate.brackets import left_out
from seq2sweep.paths import read_json
from seq2sweep.stages import stage


def work(config: Config) -> None:
    train = read_json(stage.METRICS / "train.json")
    evaluation = read_json(stage.METRICS / "evaluate.json")
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
    console.say(_f1(evaluation) if parsing else _bleu(evaluation))
    from seq2sweep.tracking.mlflow_store import compare_page  # here: MLflow takes seconds to load

    table = "table4.md" if parsing else "table3.md"
    console.say(
        f"\nLook at        reports/index.html (all of it), reports/{table}, "
        "reports/translations.tsv"
        f"\nCompare runs   make ui   then {compare_page(config, Path.cwd()) or 'what it prints'}"
    )


def _beginning(name: str, end: str) -> str:
    """Of a table in Markdown, what stands before `end`."""
    return (stage.REPORTS / name).read_text(encoding="utf-8").partition(end)[0].strip()


def _bleu(evaluation: dict[str, Any]) -> str:
    sacrebleu = evaluation["bleu"]["sacrebleu"]
    return (
        f"BLEU {sacrebleu['score']:.2f} ({sacrebleu['signature']}), tokenised as in the paper "
        f"{evaluation['bleu']['paper']['score']:.2f}, chrF {evaluation['chrf']['score']:.2f}, "
        f"perplexity {evaluation['perplexity']:.3f}"
    )


def _f1(evaluation: dict[str, Any]) -> str:
    """Loud where F1 leaves sentences out."""
    lost = left_out(evaluation)
    free = evaluation.get("unconstrained")
    return (
        f"F1 {evaluation['f1']:.2f} ({evaluation['signature']}), precision "
        f"{evaluation['precision']:.2f}, recall {evaluation['recall']:.2f}, complete match "
        f"{evaluation['complete']:.2f} %, perplexity {evaluation['perplexity']:.3f}"
        + (f"\nUnconstrained F1 {free['f1']:.2f}, {free['malformed']} malformed" if free else "")
        + f"\nWARNING: {lost} of {evaluation['sentences']} sentences are not in F1: "
        f"{evaluation['errors']} errors, {evaluation['skipped']} skipped" * bool(lost)
    )


if __name__ == "__main__":
    stage.run("summary", "what came out", work)
