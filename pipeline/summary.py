"""The end of `make reproduce`: the score, the table and where to look further. Changes nothing."""

from __future__ import annotations

from pipeline import stage
from seq2sweep import console
from seq2sweep.config import Config
from seq2sweep.paths import read_json


def work(config: Config) -> None:
    train = read_json(stage.METRICS / "train.json")
    evaluation = read_json(stage.METRICS / "evaluate.json")
    table = (stage.REPORTS / "table3.md").read_text(encoding="utf-8")
    sacrebleu = evaluation["bleu"]["sacrebleu"]
    console.say("\n" + table.partition("\n## ")[0].strip())
    console.say(
        f"\n{config.data.dataset} {config.data.source}-{config.data.target} · "
        f"{train['parameters'] / 1e6:.2f}M parameters · {train['steps']} steps in "
        f"{console.duration(train['wall_seconds'])} · "
        f"{train['tokens_per_second']:,.0f} target tokens/s"
    )
    console.say(
        f"BLEU {sacrebleu['score']:.2f} ({sacrebleu['signature']}), tokenised as in the paper "
        f"{evaluation['bleu']['paper']['score']:.2f}, chrF {evaluation['chrf']['score']:.2f}, "
        f"perplexity {evaluation['perplexity']:.3f}"
    )
    console.say(
        "\nLook at        reports/index.html (all of it), reports/table3.md, "
        "reports/translations.tsv"
        "\nCompare runs   make ui   then http://127.0.0.1:5000"
    )


if __name__ == "__main__":
    stage.run("summary", "what came out", work)
