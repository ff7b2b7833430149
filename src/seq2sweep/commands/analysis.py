"""Scores, and how results differ."""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import sys
from pathlib import Path

from tqdm import tqdm

from seq2sweep import config as configuration
from seq2sweep import console, presets
from seq2sweep.commands.shared import Commands, add_set, changes, print_json
from seq2sweep.errors import OperationalError, UserError
from seq2sweep.storage.atomic import write_whole

EXAMPLES = (
    "seq2sweep evaluate --check",
    "seq2sweep evaluate",
    "seq2sweep score output.de reference.de --to de",
    "seq2sweep score output.de wmt14/full --to de --from en",
    "seq2sweep score parsed.trees gold.trees --trees",
    "seq2sweep compare base dropout=0",
    "seq2sweep compare models/train ../other-project",
    "seq2sweep compare baseline.de system.de reference.de --to de",
    "seq2sweep why output.de reference.de --to de",
    "seq2sweep why output.de wmt14/full --to de --from en --against paper",
    "seq2sweep why dropout=0 --against base",
    "seq2sweep reproduce 0f8e7d6c",
    "seq2sweep reproduce 0f8e7d6c --set cluster.workers=1 --json",
    "seq2sweep table1",
    "seq2sweep table1 --set 'table1.lengths=[64, 128]' --set 'table1.widths=[64, 128]'",
)


def _add_evaluate(commands: Commands) -> None:
    evaluate = commands.add_parser(
        "evaluate",
        help="evaluate models/train once more, with the settings of metrics/evaluate.json, as JSON",
    )
    evaluate.add_argument(
        "--check",
        action="store_true",
        help="say instead which metrics of metrics/evaluate.json, metrics/dvc/evaluate.json and "
        "reports/translations.tsv differ from that; status 1 if any does",
    )


def _evaluate(options: argparse.Namespace) -> None:
    from seq2sweep.evaluate.check import evaluate_project, overview
    from seq2sweep.serving.cpu_quota import keep_to_quota

    keep_to_quota()
    # Standard output is for figures alone.
    with (
        contextlib.redirect_stdout(sys.stderr),
        tqdm(**console.bar("translate", "sentences")) as bar,
    ):
        found, figures = evaluate_project(
            Path(),
            lambda sentences: setattr(bar, "total", sentences),
            bar.update,
            check=options.check,
        )
    if not options.check:
        print_json(found.metrics)
        return
    print(overview(figures))
    if differ := sum(not figure.same for figure in figures):
        raise OperationalError(
            f"{differ} of {len(figures)} metrics differ: run `dvc repro -f evaluate` to write them "
            "again, and find out what changed them"
        )


def _add_score(commands: Commands) -> None:
    score = commands.add_parser(
        "score", help="BLEU and chrF of any two text files, or F1 of any two of trees, as JSON"
    )
    score.add_argument("hypothesis", type=Path, help="translations, one a line (plain or .gz)")
    _add_reference(score)
    score.add_argument(
        "--lowercase",
        action="store_true",
        help="lower-case both files first, as a run with prepare.lowercase does",
    )
    score.add_argument(
        "--trees",
        action="store_true",
        help="both files have bracketed trees, one a line: labelled F1, as EVALB counts it",
    )


def _score(options: argparse.Namespace) -> None:
    if options.trees:
        _score_trees(options)
        return
    from seq2sweep.evaluate.bleu import score_files

    files = options.hypothesis, options.reference
    asked = _language(options), options.source
    print_json(score_files(*files, *asked, lowercase=options.lowercase))


def _score_trees(options: argparse.Namespace) -> None:
    from seq2sweep.evaluate import brackets

    if options.to is not None or options.source is not None:
        raise UserError("--to and --from go with translations, not with --trees")
    if options.lowercase:
        raise UserError("--lowercase goes with translations, not with --trees")
    found = brackets.score_files(options.hypothesis, Path(options.reference))
    print_json(found)
    if lost := brackets.left_out(found):
        lines = ", ".join(map(str, found["error_lines"]))
        print(
            f"seq2sweep: {lost} of {found['sentences']} sentences are in no metric: they have "
            f"other words than gold, or none (lines {lines}"
            f"{', ...' if lost > len(found['error_lines']) else ''})",
            file=sys.stderr,
        )


def _language(options: argparse.Namespace) -> str:
    if options.to is None:
        raise UserError("say what language the translations are in: add --to LANGUAGE")
    return str(options.to)


def _add_compare(commands: Commands) -> None:
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


def _compare(options: argparse.Namespace) -> None:
    if options.reference is not None:
        _compare_translations(options)
        return
    if options.to is not None or options.source is not None:
        raise UserError("--to and --from go with files of translations and their REFERENCE")
    from seq2sweep.compare.runs import compare
    from seq2sweep.compare.scored_run import find
    from seq2sweep.compare.text import text

    with console.never_silent("compare", sys.stderr):
        result = compare(find(options.first), find(options.second), samples=options.samples)
    print_json(result) if options.json else print(text(result))


def _compare_translations(options: argparse.Namespace) -> None:
    from seq2sweep.evaluate.compare import compare_files

    files = Path(options.first), Path(options.second)
    for path in files:
        if path.is_dir():
            raise UserError(f"{path} is a folder: only files are compared by a reference")
    asked = options.reference, _language(options), options.source
    print_json(compare_files(*files, *asked, samples=options.samples))


def _add_why(commands: Commands) -> None:
    why = commands.add_parser(
        "why",
        help="what a BLEU score lost, and to what: each cause undone on the same output, and its "
        "share",
    )
    why.add_argument(
        "output",
        metavar="RUN|HYPOTHESIS",
        help="a run as `compare` takes it; or, with a REFERENCE, a file of translations",
    )
    _add_reference(why, needed=False)
    why.add_argument(
        "--against",
        metavar="paper|OTHER",
        help="how the difference to the paper's BLEU, or to that of another run or, with a "
        "REFERENCE, file, comes about; a file that is called paper is ./paper",
    )
    why.add_argument("--json", action="store_true", help="as JSON")


def _why(options: argparse.Namespace) -> None:
    from seq2sweep.compare.scored_run import find
    from seq2sweep.compare.why.explain import PAPER, Output, explain, output_of, read_output
    from seq2sweep.compare.why.overview import overview
    from seq2sweep.serving.cpu_quota import keep_to_quota

    keep_to_quota()

    def output(name: str) -> Output:
        if options.reference is None:
            return output_of(find(name))
        if Path(name).is_dir():
            raise UserError(f"{name} is a folder: a run is explained without a REFERENCE")
        return read_output(Path(name), options.reference, _language(options), options.source)

    if options.reference is None and (options.to is not None or options.source is not None):
        raise UserError("--to and --from go with a file of translations and its REFERENCE")
    given, against = output(options.output), options.against
    with tqdm(total=0, **console.bar("translate", "sentences")) as bar:

        def more(sentences: int) -> None:
            bar.total = (bar.total or 0) + sentences

        other = against if against in (None, PAPER) else output(against)
        found = explain(given, other, more, bar.update)
    print_json(found) if options.json else print(overview(found))


def _add_reproduce(commands: Commands) -> None:
    reproduce = commands.add_parser(
        "reproduce",
        help="make a recorded run again, from its record alone, and say whether it is identical",
        description="In a git worktree of the run's commit, with the data that it had. Status 1 "
        "unless all that is compared is identical. Run it again to resume.",
    )
    reproduce.add_argument(
        "run", help="id of a training, an evaluation or a trial in MLflow, or how it begins"
    )
    reproduce.add_argument(
        "--folder", type=Path, help="of the worktree, which stays (beside this one, by the id)"
    )
    add_set(reproduce, "run it elsewhere than it ran, such as --set cluster.workers=1")
    reproduce.add_argument(
        "--trust-changes",
        action="store_true",
        help="where another project's store, or a server, has the run: run its changes of files, "
        "and a commit that no branch or tag here has",
    )
    reproduce.add_argument("--json", action="store_true", help="the verdict as JSON")


def _reproduce(options: argparse.Namespace) -> None:
    from seq2sweep.reproduce.run_again import reproduce

    about, verdict = reproduce(
        Path.cwd(),
        options.run,
        folder=options.folder,
        settings=changes(options.set),
        trusted=options.trust_changes,
        say=lambda line: print(line, file=sys.stderr, flush=True),
    )
    if options.json:
        print_json(about | verdict.as_json())
    else:
        print(f"run {about['run']}, {about['stage']} at commit {about['commit'][:12]}")
        print("\n".join(verdict.lines()))
        folder = about["folder"]
        print(f"it stays in {folder}, until: git worktree remove --force {shlex.quote(folder)}")
        if about["storage"]:
            print(f"and its checkpoints in {about['storage']}, until you remove that")
    if not verdict.identical:
        raise OperationalError(f"run {about['run']} made again: {verdict.words}")


def _add_table1(commands: Commands) -> None:
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
    add_set(table1, "measure something else, such as --set table1.kernel=5")


def _table1(options: argparse.Namespace) -> None:
    from seq2sweep.report.paper_tables.table1 import table1_files
    from seq2sweep.table1.measure import FULL, measure
    from seq2sweep.tracking.lineage import code, hardware

    changed = changes(options.set)
    for key in changed:
        if not key.startswith("table1."):
            raise UserError(f"--set {key}: only keys of table1 are measured, such as table1.kernel")
    full = {f"table1.{key}": value for key, value in FULL.items()}
    config = configuration.with_changes(presets.load("phrasebook").config, full | changed, "--set")
    options.folder.mkdir(parents=True, exist_ok=True)
    with console.never_silent("table1", sys.stderr):
        record = measure(config.table1, code(Path()) | hardware())
    files = {"table1.json": json.dumps(record, indent=2) + "\n"} | table1_files(record)
    try:
        print(files["table1.md"], flush=True)  # whether it can be written or not
    finally:  # when its reader has gone (`| head`), too
        for name, text in files.items():
            write_whole(options.folder / name, text)
    print(f"{options.folder} holds this as {', '.join(sorted(files))}")


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


COMMANDS = {
    "evaluate": (_add_evaluate, _evaluate),
    "score": (_add_score, _score),
    "compare": (_add_compare, _compare),
    "why": (_add_why, _why),
    "reproduce": (_add_reproduce, _reproduce),
    "table1": (_add_table1, _table1),
}
