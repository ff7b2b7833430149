"""The project and its cluster: params.yaml, plan, checks, jobs and what is recorded."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from seq2sweep import config as configuration
from seq2sweep import console, presets
from seq2sweep.commands.shared import Commands, add_set, changes, print_json
from seq2sweep.config import Config
from seq2sweep.config.execution import HOME
from seq2sweep.errors import OperationalError, UserError
from seq2sweep.project_files import PARAMS
from seq2sweep.storage.atomic import write_whole

if TYPE_CHECKING:
    from seq2sweep.health import Finding

EXAMPLES = (
    "seq2sweep preset",
    "seq2sweep preset base",
    "seq2sweep preset phrasebook --set model.heads=8 --set train.steps=1200",
    "seq2sweep init corpora/mine --from en --to de",
    "seq2sweep init corpora/mine/news.en corpora/mine/news.de",
    "seq2sweep init corpora/mine/news.parquet:en corpora/mine/news.parquet:de",
    "seq2sweep plan",
    "seq2sweep plan --on '8 x H100' --mfu 0.35",
    "seq2sweep plan --json",
    "seq2sweep doctor",
    "seq2sweep doctor --json",
    "seq2sweep submit --address http://127.0.0.1:8265",
    "seq2sweep submit sweep --detach",
    "seq2sweep submit all --dry-run",
    "seq2sweep sync",
    "seq2sweep ui",
    "seq2sweep ui --port 5001",
)


def _add_preset(commands: Commands) -> None:
    preset = commands.add_parser("preset", help="list experiments, or write params.yaml from one")
    preset.add_argument("name", nargs="?", help="the preset; without it all are listed")
    add_set(preset, "change a value, such as --set model.heads=8")
    preset.add_argument(
        "--force", action="store_true", help="also over a params.yaml that was edited"
    )


def _preset(options: argparse.Namespace) -> None:
    if options.name is None:
        if options.set:
            raise UserError("--set needs the name of a preset to start from")
        print(presets.overview())
        return
    preset = presets.load(options.name)
    config = configuration.with_changes(preset.config, changes(options.set), "--set")
    _keep_edited(options.force)
    write_whole(PARAMS, configuration.dump(config))
    print(f"{PARAMS} is now {preset.name}; {_who_runs_it()}")
    if not options.set:
        print(f"    {preset.expectation}")


def _who_runs_it() -> str:
    if Path("dvc.yaml").exists():
        return "`dvc repro` runs it"
    return "but there is no dvc.yaml here to run it: call this in the project's folder"


def _keep_edited(force: bool) -> None:
    """Raise UserError where params.yaml holds what nothing else does."""
    if PARAMS.exists() and not force and not presets.is_unchanged(PARAMS):
        raise UserError(
            f"{PARAMS} differs from every preset, and its changes would be lost: copy it "
            "elsewhere, or add --force to overwrite it"
        )


def _add_init(commands: Commands) -> None:
    init = commands.add_parser(
        "init", help="write params.yaml for your own text: splits, sizes and steps, with reasons"
    )
    init.add_argument(
        "source",
        help="a text, one sentence a line (plain or .gz), or TABLE:COLUMN of a .parquet or .arrow "
        "file; or, alone, a folder with both sides, such a table, or the beginning of both names",
    )
    init.add_argument("target", nargs="?", help="its translation, line by line")
    init.add_argument(
        "--from", dest="origin", metavar="LANGUAGE", help="of the source, where no name says it"
    )
    init.add_argument("--to", metavar="LANGUAGE", help="of the target")
    init.add_argument(
        "--force", action="store_true", help="also over a params.yaml that was edited"
    )


def _init(options: argparse.Namespace) -> None:
    from seq2sweep.data.own.discovery import find
    from seq2sweep.planning.plan import plan
    from seq2sweep.planning.proposal import propose
    from seq2sweep.planning.render import as_time

    _keep_edited(options.force)
    found = find(options.source, options.target, (options.origin, options.to))
    made = propose(found, Path())
    write_whole(PARAMS, configuration.dump(made.config))
    data = made.config.data
    print(f"{data.folder}, {data.source} to {data.target}", *made.lines, sep="\n")
    try:
        planned = plan(Path())
    except (UserError, OperationalError) as error:
        print(f"  the plan fails: {error}")
    else:
        seconds, device = planned["total"]["seconds"], planned["device"]
        print(f"  time   about {as_time(seconds)} in all on {device['count']} x {device['name']}")
    print(f"{PARAMS} holds this; `seq2sweep plan` says more, {_who_runs_it()}")


def _add_plan(commands: Commands) -> None:
    plan = commands.add_parser(
        "plan",
        help="what will run and why, and what it will need, take and cost; nothing is done",
    )
    plan.add_argument(
        "--on",
        metavar="'8 x H100'",
        help="devices of infra/prices.yaml, instead of those of this machine; with "
        "`, 100 Gbit/s` the network between machines of eight",
    )
    plan.add_argument(
        "--mfu",
        type=float,
        metavar="SHARE",
        help="of the devices' peak that training reaches, such as 0.35, instead of what earlier "
        "runs reached or what is assumed",
    )
    plan.add_argument("--json", action="store_true", help="as JSON")


def _plan(options: argparse.Namespace) -> None:
    from seq2sweep.planning.plan import plan
    from seq2sweep.planning.render import overview

    made = plan(Path(), on=options.on, mfu=options.mfu)
    print_json(made) if options.json else print(overview(made))


def _add_doctor(commands: Commands) -> None:
    doctor = commands.add_parser(
        "doctor", help="look whether this machine, or each node of the cluster, is fit to train"
    )
    doctor.add_argument("--json", action="store_true", help="as JSON")


def _doctor(options: argparse.Namespace) -> None:
    from seq2sweep import health
    from seq2sweep.tracking import mlflow_store

    config, project = configuration.load(PARAMS), Path.cwd()
    # Standard output is for findings alone.
    with contextlib.redirect_stdout(sys.stderr), console.never_silent("checking"):
        findings = [*_examined(config, project), mlflow_store.examine(config, project)]
    if options.json:
        print_json([dataclasses.asdict(finding) for finding in findings])
    else:
        print(health.overview(findings))
    problems = sum(finding.level == "problem" for finding in findings)
    if problems:
        raise OperationalError(f"{problems} problem(s) found")


def _examined(config: Config, project: Path) -> list[Finding]:
    """What is found of the cluster, or of the way to it."""
    from seq2sweep.jobs import submit

    address = config.cluster.job_server
    if address is not None and submit.runs_as_job(config):
        findings = submit.examine(config, address, project)
        from seq2sweep.cluster.job_client import in_shell

        print(
            f"nodes are checked from inside the cluster: {in_shell(address)} ray job submit "
            "--working-dir . "
            """--runtime-env-json '{"env_vars": {"PYTHONPATH": "src"}}' """
            "-- python -m seq2sweep.cli doctor"
        )
        return findings
    from seq2sweep.cluster import doctor
    from seq2sweep.cluster.session import ray_session

    print("checking every node, which takes about ten seconds ...")
    with ray_session(config.cluster):
        return doctor.examine(config, project)


def _add_submit(commands: Commands) -> None:
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


def _submit(options: argparse.Namespace) -> None:
    from seq2sweep.jobs import results, submit

    config = configuration.load(PARAMS)
    with console.never_silent("asking DVC what has changed"):
        wanted = submit.order(Path.cwd(), config, options.stage)
    if options.dry_run:
        print(submit.overview(wanted))
        submit.check_records_stay(config, wanted)
        results.values_of(config.cluster.job_environment)
    else:
        # It follows the job to its end, whose status it has, as a stage does under `| head`.
        console.ready_streams(lasting=True)
        submit.run(config, wanted, options.address, detach=options.detach)


def _add_sync(commands: Commands) -> None:
    commands.add_parser(
        "sync", help="record in MLflow what stages could not, as it was away or they were killed"
    )


def _sync(options: argparse.Namespace) -> None:
    from seq2sweep.tracking.mlflow_store import destination
    from seq2sweep.tracking.relay_thread import sync

    root, uri, experiment, artifacts = destination(configuration.load(PARAMS), Path.cwd())
    # What was recorded before `cluster.storage` was set to another folder.
    usual = (Path.cwd() / HOME / root.name).resolve()
    failures: list[OperationalError] = []
    for folder in dict.fromkeys([root, *([usual] if usual.exists() else [])]):
        try:
            print(sync(folder, uri, experiment, artifacts))
        except OperationalError as error:
            failures.append(error)
    if failures:
        raise OperationalError("; ".join(map(str, failures)))


def _add_ui(commands: Commands) -> None:
    ui = commands.add_parser("ui", help="compare runs on MLflow's page, on this machine only")
    ui.add_argument("--port", default="5000", help="of 127.0.0.1 (5000)")


def _ui(options: argparse.Namespace) -> None:
    from seq2sweep.cluster.signals import signals_as_interrupts
    from seq2sweep.tracking.mlflow_store import serve

    with signals_as_interrupts():
        serve(configuration.load(PARAMS), Path.cwd(), options.port)


COMMANDS = {
    "preset": (_add_preset, _preset),
    "init": (_add_init, _init),
    "plan": (_add_plan, _plan),
    "doctor": (_add_doctor, _doctor),
    "submit": (_add_submit, _submit),
    "sync": (_add_sync, _sync),
    "ui": (_add_ui, _ui),
}
