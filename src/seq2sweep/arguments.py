"""What can be typed behind `seq2sweep`: subcommands, their arguments and examples of each."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TypeAlias

import shtab

from seq2sweep import console

EXAMPLES = (
    "seq2sweep preset",
    "seq2sweep preset base",
    "seq2sweep preset phrasebook --set model.heads=8 --set train.steps=1200",
    "seq2sweep plan",
    "seq2sweep plan --on '8 x H100' --mfu 0.35",
    "seq2sweep plan --json",
    'echo "The cat sleeps." | seq2sweep translate',
    "seq2sweep translate news.en.gz --n-best 4",
    "seq2sweep translate news.en --tasks",
    'seq2sweep attend "The cat sleeps on the old sofa."',
    'seq2sweep attend "The cat sleeps." --target "Die Katze schläft."',
    'seq2sweep attend "The cat sleeps." --out cat.svg --of encoder --layer 2 --head 3 --word cat',
    "seq2sweep export ctranslate2-model",
    "seq2sweep evaluate --check",
    "seq2sweep evaluate",
    "seq2sweep score output.de reference.de --to de",
    "seq2sweep score output.de wmt14/full --to de --from en",
    "seq2sweep score parsed.trees gold.trees --trees",
    "seq2sweep compare base A-heads-1",
    "seq2sweep compare models/train ../other-project",
    "seq2sweep compare baseline.de system.de reference.de --to de",
    "seq2sweep table1",
    "seq2sweep table1 --set table1.lengths=[64,128] --set table1.widths=[64,128]",
    "seq2sweep doctor",
    "seq2sweep doctor --json",
    "seq2sweep submit --address http://127.0.0.1:8265",
    "seq2sweep submit sweep --detach",
    "seq2sweep submit all --dry-run",
    "seq2sweep sync",
    "seq2sweep ui",
    "seq2sweep ui --port 5001",
)
"""For each subcommand's --help those that call it; a test parses every one."""


Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
"""What add_subparsers gives; it has no public name."""


def examples(name: str) -> list[str]:
    """Those that call a subcommand."""
    return [line for line in EXAMPLES if f"seq2sweep {name}" in line]


def parser() -> argparse.ArgumentParser:
    """Of the `seq2sweep` command and all its subcommands."""
    made = argparse.ArgumentParser(
        prog="seq2sweep",
        description="The Transformer paper as a living experiment. `dvc repro` runs the pipeline.",
    )
    made.add_argument(
        "--version", action="version", version=f"%(prog)s {console.installed_version()}"
    )
    shtab.add_argument_to(
        made,
        "--print-completion",
        help="print the completion of this command for a shell",
    )
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")

    for add in (
        *(_preset, _plan, _translate, _attend, _export, _evaluate),
        *(_score, _compare, _table1, _doctor, _submit, _ui),
    ):
        add(commands)
    commands.add_parser(
        "sync", help="record in MLflow what stages could not, as it was away or they were killed"
    )
    for name, command in commands.choices.items():
        command.formatter_class = argparse.RawDescriptionHelpFormatter
        command.epilog = "\n  ".join(["examples:", *examples(name)])
    return made


def _preset(commands: Commands) -> None:
    preset = commands.add_parser("preset", help="list experiments, or write params.yaml from one")
    preset.add_argument("name", nargs="?", help="the preset; without it all are listed")
    preset.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change a value, such as --set model.heads=8 (again for more)",
    )
    preset.add_argument(
        "--force", action="store_true", help="also over a params.yaml that was edited"
    )


def _plan(commands: Commands) -> None:
    plan = commands.add_parser(
        "plan",
        help="what will run and why, and what it will need, take and cost; nothing is done",
    )
    plan.add_argument(
        "--on",
        metavar="'8 x H100'",
        help="devices of infra/prices.yaml, instead of those of this machine",
    )
    plan.add_argument(
        "--mfu",
        type=float,
        metavar="SHARE",
        help="of the devices' peak that training reaches, such as 0.35, instead of what earlier "
        "runs reached or what is assumed",
    )
    plan.add_argument("--json", action="store_true", help="as JSON")


def _translate(commands: Commands) -> None:
    translate = commands.add_parser("translate", help="translate text with the trained weights")
    translate.add_argument(
        "file", nargs="?", type=Path, help="text, one sentence a line, plain or .gz (else stdin)"
    )
    translate.add_argument(
        "--n-best",
        type=int,
        metavar="N",
        help="the N best of each line with their scores: line number, score, text, with tabs",
    )
    translate.add_argument(
        "--engine",
        choices=("own", "ctranslate2"),
        default="own",
        help="what searches: this program, or CTranslate2 (extra ctranslate2; on CPUs)",
    )
    translate.add_argument(
        "--tasks",
        action="store_true",
        help="by Ray tasks on every CPU, or GPU, of cluster.address; without one, of this machine",
    )
    _add_trained(translate)


def _attend(commands: Commands) -> None:
    attend = commands.add_parser(
        "attend",
        help="show what the trained model attends to, as a page of its own or as a figure",
        description="As the paper's figures 3 to 5: sentences with their translations, each layer "
        "and head, and each head in numbers.",
    )
    attend.add_argument("sentences", nargs="+", metavar="SENTENCE", help="text to translate")
    attend.add_argument(
        "--target",
        action="append",
        default=[],
        metavar="TEXT",
        help="what the model is to say instead of its own translation (again for each sentence)",
    )
    attend.add_argument(
        "--out",
        type=Path,
        default=Path("attention.html"),
        metavar="FILE",
        help="what to write: a page (.html, as without this), a figure of the first sentence "
        "(.svg), or all weights (.json)",
    )
    attend.add_argument(
        "--of",
        choices=("encoder", "decoder", "memory"),
        default="memory",
        help="which attention is shown first: of encoder or decoder to itself, or, as without "
        "this, of the decoder to the source",
    )
    attend.add_argument("--layer", type=int, metavar="N", help="its layer, from 1 (the last)")
    attend.add_argument(
        "--head", type=int, action="append", metavar="N", help="its head, from 1 (again; all)"
    )
    attend.add_argument("--word", metavar="WORD", help="the attention of this word alone")
    attend.add_argument("--tokens", action="store_true", help="a figure by token, not by word")
    _add_trained(attend)


def _export(commands: Commands) -> None:
    export = commands.add_parser(
        "export", help="write the trained weights as CTranslate2 reads them (extra ctranslate2)"
    )
    export.add_argument("folder", type=Path, help="where to: a folder that is not there yet")
    _add_trained(export)


def _evaluate(commands: Commands) -> None:
    evaluate = commands.add_parser(
        "evaluate",
        help="evaluate models/train once more, with the settings of metrics/evaluate.json, as JSON",
    )
    evaluate.add_argument(
        "--check",
        action="store_true",
        help="say instead which figures of metrics/evaluate.json, metrics/dvc/evaluate.json and "
        "reports/translations.tsv differ from that; status 1 if any does",
    )


def _score(commands: Commands) -> None:
    score = commands.add_parser(
        "score", help="BLEU and chrF of any two text files, or F1 of any two of trees, as JSON"
    )
    score.add_argument("hypothesis", type=Path, help="translations, one a line (plain or .gz)")
    _add_reference(score)
    score.add_argument(
        "--trees",
        action="store_true",
        help="both files have bracketed trees, one a line: labelled F1, as EVALB counts it",
    )


def _compare(commands: Commands) -> None:
    compare = commands.add_parser(
        "compare",
        help="two runs: what differs in parameters, code, data and score, and is it chance? "
        "Or two systems' translations by a reference",
    )
    compare.add_argument(
        "first",
        metavar="A",
        help="a trial or variant of the sweep, such as base; a folder of weights, or of another "
        "project; FOLDER:TRIAL; or a file of translations, one a line",
    )
    compare.add_argument("second", metavar="B", help="what it is compared with")
    _add_reference(compare, needed=False)
    compare.add_argument(
        "--samples",
        type=int,
        default=1000,
        metavar="NUMBER",
        help="how often the test set is drawn (1000)",
    )
    compare.add_argument(
        "--json", action="store_true", help="as JSON, which it always is with a REFERENCE"
    )


def _table1(commands: Commands) -> None:
    table1 = commands.add_parser(
        "table1",
        help="measure Table 1 of the paper: types of layer, over lengths and widths; minutes",
        description="The stage of this name measures what params.yaml says, which is less.",
    )
    table1.add_argument(
        "folder",
        nargs="?",
        type=Path,
        default=Path("reports/table1"),
        help="where table1.json, .md, .csv, .tex and .html are written (reports/table1)",
    )
    table1.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="measure something else, such as --set table1.kernel=5 (again for more)",
    )


def _doctor(commands: Commands) -> None:
    doctor = commands.add_parser(
        "doctor", help="look whether this machine, or each node of the cluster, is fit to train"
    )
    doctor.add_argument("--json", action="store_true", help="as JSON")


def _submit(commands: Commands) -> None:
    submit = commands.add_parser(
        "submit",
        help="run a stage as a job on a cluster, or attach to the job that does; Ctrl-C detaches",
    )
    submit.add_argument(
        "stage",
        nargs="?",
        default="train",
        help="train (without a name), sweep, evaluate or another of dvc.yaml; all: `dvc repro`",
    )
    submit.add_argument(
        "--address",
        metavar="http://HOST:8265",
        help="the job server, instead of cluster.job_server or $RAY_API_SERVER_ADDRESS",
    )
    submit.add_argument("--detach", action="store_true", help="do not follow the job")
    submit.add_argument(
        "--dry-run", action="store_true", help="list what would be uploaded, and the job's id"
    )


def _ui(commands: Commands) -> None:
    ui = commands.add_parser("ui", help="compare runs on MLflow's page, on this machine only")
    ui.add_argument("--port", default="5000", help="of 127.0.0.1 (5000)")


def _add_trained(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--weights", type=Path, default=Path("models/train"), help="their folder (models/train)"
    )
    command.add_argument(
        "--vocabulary",
        type=Path,
        default=Path("data/vocabulary"),
        help="its folder (data/vocabulary)",
    )


def _add_reference(command: argparse.ArgumentParser, needed: bool = True) -> None:
    """needed: whether a reference is; trees have one, and no language."""
    command.add_argument(
        "reference",
        nargs=None if needed else "?",
        help="reference translations, line by line, or a test set of sacreBLEU: wmt14/full is "
        "newstest2014 with its 3003 sentences, wmt14 the 2737 filtered ones",
    )
    command.add_argument("--to", metavar="LANGUAGE", help="its language, such as de")
    command.add_argument(
        "--from",
        dest="source",
        metavar="LANGUAGE",
        help="the language translated from, such as en; needed with a test set's name",
    )
