"""The `seq2sweep` command."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from seq2sweep import config as configuration
from seq2sweep import console, presets, yaml_text
from seq2sweep.arguments import parser
from seq2sweep.errors import EXIT_INTERRUPTED, OperationalError, UserError, ending
from seq2sweep.parallel import Mapper, serial
from seq2sweep.redaction import redact
from seq2sweep.storage.atomic import write_whole

PARAMS = Path("params.yaml")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand. Exit status: 0 done, 2 the input is wrong (one line says what)."""
    console.quiet_environment()
    console.ready_streams()
    options = parser().parse_args(arguments)
    try:
        WORK[options.command](options)
        # Here rather than at exit, where nobody would hear of a closed pipe or a full disk.
        sys.stdout.flush()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader (`| head`) has seen enough.
        _leave_standard_output()
    except (UserError, OperationalError, OSError) as error:
        line, status = ending(error)
        print(redact(f"seq2sweep {options.command}: {line}"), file=sys.stderr)
        if isinstance(error, OSError):
            _leave_standard_output()
        return status
    return 0


def _leave_standard_output() -> None:
    """Keep the interpreter from flushing once more, at its end, into what cannot be written."""
    with contextlib.suppress(OSError, io.UnsupportedOperation):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def _preset(options: argparse.Namespace) -> None:
    if options.name is None:
        if options.set:
            raise UserError("--set needs the name of a preset to start from")
        print(presets.overview())
        return
    preset = presets.load(options.name)
    config = configuration.with_changes(preset.config, _changes(options.set), "--set")
    if PARAMS.exists() and not options.force and not presets.is_unchanged(PARAMS):
        raise UserError(
            f"{PARAMS} differs from every preset, and its changes would be lost: copy it "
            "elsewhere, or add --force to overwrite it"
        )
    write_whole(PARAMS, configuration.dump(config))
    print(f"{PARAMS} is now {preset.name}; `dvc repro` runs it")
    if not options.set:
        print(f"    {preset.expectation}")


def _changes(assignments: Sequence[str]) -> dict[str, object]:
    changes = {}
    for assignment in assignments:
        key, separator, text = assignment.partition("=")
        if not separator or not key:
            raise UserError(f"--set wants KEY=VALUE, not {assignment}")
        try:
            changes[key] = yaml_text.read_yaml(text)
        except yaml_text.ERRORS:
            raise UserError(f"--set {key}: {text} is not a YAML value") from None
    return changes


def _plan(options: argparse.Namespace) -> None:
    from seq2sweep.planning.plan import plan
    from seq2sweep.planning.render import overview

    made = plan(Path(), on=options.on, mfu=options.mfu)
    _print_json(made) if options.json else print(overview(made))


def _translate(options: argparse.Namespace) -> None:
    from seq2sweep.data.reading import lines_of, read_lines
    from seq2sweep.evaluate.translator import Translator

    config = configuration.load(PARAMS)
    beam = config.evaluate.beam
    n_best = options.n_best if options.n_best is not None else 1
    if not 1 <= n_best <= beam:
        raise UserError(f"--n-best is {n_best}: it must be from 1 to evaluate.beam, {beam}")
    if options.tasks and options.engine != "own":
        raise UserError("--tasks goes with this program's own search only: leave out --engine")
    translator = Translator(options.weights, options.vocabulary, config.evaluate)
    if options.file:
        lines = list(read_lines(options.file))
    elif sys.stdin is None:
        raise UserError("standard input is closed: name the FILE to translate")
    else:
        lines = list(lines_of(sys.stdin.buffer, "standard input"))
    with contextlib.ExitStack() as stack:
        engine = translator.ctranslate2(stack) if options.engine == "ctranslate2" else None
        mapper: Mapper = serial
        if options.tasks:
            from seq2sweep.cluster.tasks import ray_mapper  # here: Ray takes seconds to load

            mapper = stack.enter_context(ray_mapper(config.cluster))
        bar = stack.enter_context(tqdm(total=len(lines), **console.bar("translate", "sentences")))
        found = translator.translate(lines, n_best, bar.update, engine, mapper)
    for number, translations in enumerate(found, start=1):
        for translation in translations:
            score = f"{number}\t{translation.score:.4f}\t" if options.n_best is not None else ""
            print(f"{score}{translation.text}")


def _attend(options: argparse.Namespace) -> None:
    from seq2sweep.evaluate import attention_maps
    from seq2sweep.evaluate.translator import Translator
    from seq2sweep.report.attention import attention_figure, attention_page

    kind = options.out.suffix.lower()
    if kind not in (".html", ".svg", ".json"):
        raise UserError(f"--out {options.out}: name a file that ends in .html, .svg or .json")
    if options.target and len(options.target) != len(options.sentences):
        raise UserError(
            f"{len(options.sentences)} sentences but {len(options.target)} --target: give one each"
        )
    config = configuration.load(PARAMS)
    translator = Translator(options.weights, options.vocabulary, config.evaluate)
    pairs = attention_maps.pairs(translator, options.sentences, options.target)
    maps = [attention_maps.maps(translator.model, translator.vocabulary, pair) for pair in pairs]
    chosen = attention_maps.choose(
        maps[0], options.of, options.layer, options.head, options.word, words=not options.tokens
    )
    if kind == ".svg":
        text = attention_figure.draw(maps[0], *chosen, words=not options.tokens)
    else:
        with tqdm(
            total=attention_maps.head_count(translator.model), **console.bar("leave out", "heads")
        ) as bar:
            numbers = attention_maps.numbers(translator.model, maps, pairs, bar.update)
        if kind == ".json":
            text = attention_page.as_json(maps, numbers)
        else:
            about = f"{options.weights}, checkpoints {', '.join(map(str, translator.steps))}"
            text = attention_page.render(maps, numbers, about, chosen)
    write_whole(options.out, text)
    print(f"{options.out} shows what the model attends to")


def _export(options: argparse.Namespace) -> None:
    from seq2sweep.decode.ctranslate import export
    from seq2sweep.evaluate.translator import Translator

    config = configuration.load(PARAMS).evaluate
    export(Translator(options.weights, options.vocabulary, config).model, options.folder)
    print(
        f"{options.folder} holds the weights for CTranslate2; its tokens are the ids of "
        f"{options.vocabulary}, as text, and a sentence ends with 2"
    )


def _evaluate(options: argparse.Namespace) -> None:
    from seq2sweep.evaluate.check import evaluate_project, overview

    with tqdm(**console.bar("translate", "sentences")) as bar:
        found, figures = evaluate_project(
            Path(), lambda sentences: setattr(bar, "total", sentences), bar.update
        )
    if not options.check:
        _print_json(found.metrics)
        return
    print(overview(figures))
    if differ := sum(not figure.same for figure in figures):
        raise OperationalError(
            f"{differ} of {len(figures)} metrics differ: run `dvc repro -f evaluate` to write them "
            "again, and find out what changed them"
        )


def _score(options: argparse.Namespace) -> None:
    if options.trees:
        _score_trees(options)
        return
    from seq2sweep.evaluate.bleu import score_files

    to = _language(options)
    _print_json(score_files(options.hypothesis, options.reference, to, options.source))


def _score_trees(options: argparse.Namespace) -> None:
    from seq2sweep.evaluate import brackets

    if options.to is not None or options.source is not None:
        raise UserError("--to and --from go with translations, not with --trees")
    found = brackets.score_files(options.hypothesis, Path(options.reference))
    _print_json(found)
    if found["errors"] or found["skipped"]:
        lines = ", ".join(map(str, found["error_lines"]))
        left_out = found["errors"] + found["skipped"]
        print(
            f"seq2sweep: {left_out} of {found['sentences']} sentences are in no figure: they have "
            f"other words than gold, or none (lines {lines}"
            f"{', ...' if left_out > len(found['error_lines']) else ''})",
            file=sys.stderr,
        )


def _language(options: argparse.Namespace) -> str:
    if options.to is None:
        raise UserError("say what language the translations are in: add --to LANGUAGE")
    return str(options.to)


def _compare(options: argparse.Namespace) -> None:
    if options.reference is not None:
        _compare_translations(options)
        return
    if options.to is not None or options.source is not None:
        raise UserError("--to and --from go with files of translations and their REFERENCE")
    from seq2sweep.compare.runs import compare
    from seq2sweep.compare.scored_run import find
    from seq2sweep.compare.text import text

    result = compare(find(options.first), find(options.second), samples=options.samples)
    _print_json(result) if options.json else print(text(result))


def _compare_translations(options: argparse.Namespace) -> None:
    from seq2sweep.evaluate.compare import compare_files

    files = Path(options.first), Path(options.second)
    for path in files:
        if path.is_dir():
            raise UserError(f"{path} is a folder: only files are compared by a reference")
    asked = options.reference, _language(options), options.source
    _print_json(compare_files(*files, *asked, samples=options.samples))


def _table1(options: argparse.Namespace) -> None:
    from seq2sweep.report.paper_tables.table1_files import markdown, table1_files
    from seq2sweep.storage.atomic import write_whole
    from seq2sweep.table1.measure import FULL, measure
    from seq2sweep.tracking.lineage import code, hardware

    changes = _changes(options.set)
    for key in changes:
        if not key.startswith("table1."):
            raise UserError(f"--set {key}: only keys of table1 are measured, such as table1.kernel")
    full = {f"table1.{key}": value for key, value in FULL.items()}
    config = configuration.with_changes(presets.load("phrasebook").config, full | changes, "--set")
    options.folder.mkdir(parents=True, exist_ok=True)
    with console.never_silent("table1"):
        record = measure(config.table1, code(Path()) | hardware())
    files = table1_files(record) | {"table1.json": json.dumps(record, indent=2) + "\n"}
    for name, text in files.items():
        write_whole(options.folder / name, text)
    print(markdown(record))
    print(f"{options.folder} holds this as {', '.join(sorted(files))}")


def _doctor(options: argparse.Namespace) -> None:
    from seq2sweep import health
    from seq2sweep.jobs import submit
    from seq2sweep.tracking import mlflow_store

    config, project = configuration.load(PARAMS), Path.cwd()
    address = config.cluster.job_server
    if address is not None and submit.runs_as_job(config):
        findings = submit.examine(config, address, project)
        print(
            "nodes are checked from inside the cluster: ray job submit "
            f"--address {address} --working-dir . -- python -m seq2sweep.cli doctor",
            file=sys.stderr,
        )
    else:
        from seq2sweep.cluster import doctor
        from seq2sweep.cluster.session import ray_session

        print("checking every node, which takes about ten seconds ...", file=sys.stderr)
        with ray_session(config.cluster):
            findings = doctor.examine(config, project)
    findings.append(mlflow_store.examine(config, project))
    if options.json:
        _print_json([dataclasses.asdict(finding) for finding in findings])
    else:
        print(health.overview(findings))
    problems = sum(finding.level == "problem" for finding in findings)
    if problems:
        raise OperationalError(f"{problems} problem(s) found")


def _submit(options: argparse.Namespace) -> None:
    from seq2sweep.jobs import submit

    config = configuration.load(PARAMS)
    wanted = submit.order(Path.cwd(), config, options.stage)
    if options.dry_run:
        print(submit.overview(wanted))
        submit.check_records_stay(config, wanted)
    else:
        submit.run(config, wanted, options.address, detach=options.detach)


def _sync(options: argparse.Namespace) -> None:
    from seq2sweep.tracking.mlflow_store import destination
    from seq2sweep.tracking.relay_thread import sync

    print(sync(*destination(configuration.load(PARAMS), Path.cwd())))


def _ui(options: argparse.Namespace) -> None:
    from seq2sweep.tracking.mlflow_store import serve

    serve(configuration.load(PARAMS), Path.cwd(), options.port)


WORK = {
    work.__name__.removeprefix("_"): work
    for work in (
        *(_preset, _plan, _translate, _attend, _export, _evaluate),
        *(_score, _compare, _table1, _doctor, _submit, _sync, _ui),
    )
}


if __name__ == "__main__":
    sys.exit(main())
