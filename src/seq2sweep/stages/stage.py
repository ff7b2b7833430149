"""What all stages share: how a stage starts and ends."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from seq2sweep import code_fingerprint, console
from seq2sweep import config as configuration
from seq2sweep.data import files
from seq2sweep.data.bitext import read_training_header
from seq2sweep.errors import (
    EXIT_INTERRUPTED,
    OperationalError,
    UserError,
    ending,
    first_of,
    leave_if_unclean,
)
from seq2sweep.jobs import dvc_stages, entrypoint, submit
from seq2sweep.parallel import Mapper, serial
from seq2sweep.paths import read_json
from seq2sweep.project_files import CLEAN, ENCODED, METRICS, PARAMS, RAW, VOCABULARY
from seq2sweep.redaction import redact
from seq2sweep.storage.atomic import whole_folder
from seq2sweep.storage.atomic import write_json as write_json
from seq2sweep.sweep.variants import variants
from seq2sweep.tracking.lineage import UNKNOWN, lineage_tags

if TYPE_CHECKING:
    from seq2sweep.reproduce.run_record import Source
    from seq2sweep.runs.warm_start import Origin

CHANGES_NO_RESULT = "how a stage starts and ends"

TEMPORARY = ".dvc/tmp/exps/"
"""Where DVC runs experiments that do not run in the workspace."""

SCORING = ("student", "sweep")
"""Stages that score after a training; `evaluate` looks at the seed itself before it decodes."""


def run(
    name: str,
    about: str,
    work: Callable[[configuration.Config], None],
    *,
    as_job: Callable[[configuration.Config], bool] = lambda config: False,
) -> NoReturn:
    """Run one stage on params.yaml and exit.

    as_job: whether with `cluster.job_server` it runs there, and what it leaves is brought here.
    Status: 0 done, 2 the input is wrong, 75 interrupted (Ctrl-C or SIGTERM), else a failure.
    """
    if not gc.isenabled():  # see pipeline/__init__.py
        gc.enable()
        # What has been imported stays: no collection walks it again, nor does the interpreter's
        # end, which would take a second.
        gc.freeze()
    console.ready_streams(lasting=True)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, _interrupt)
    try:
        _require_no_arguments(name, about)
        dvc_stages.require_own_code(Path.cwd())
        config = configuration.load(PARAMS)
        _require_lasting(config)
        # A mistake in the sweep is told now, not when everything before it has been trained.
        variants(config)
        if name in SCORING:
            from seq2sweep.evaluate.bleu import bootstrap_seed  # here: half a second

            bootstrap_seed()
        console.say(f"\n== {name} · {about}")
        with console.never_silent(name), _unchanged(name, config):
            if as_job(config) and submit.runs_as_job(config):
                submit.run_stage(Path.cwd(), config, name)
            else:
                work(config)
    except (UserError, OperationalError, OSError) as error:
        line, status = ending(error)
        print(redact(f"seq2sweep {name}: {line}"), file=sys.stderr)
        leave_if_unclean(error, status)
        sys.exit(status)
    except KeyboardInterrupt:
        print(f"seq2sweep {name}: interrupted; run `dvc repro` to resume", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)
    sys.exit(0)


def _require_no_arguments(name: str, about: str) -> None:
    """Exit with what the stage is where it was called with --help; raise UserError for another
    argument: it would run for hours on values that were not meant."""
    program = getattr(sys.modules["__main__"], "__spec__", None)
    given = sys.argv[1:]
    if not given or program is None or program.name != f"pipeline.{name}":
        return
    values = f"values are those of {PARAMS}; `dvc exp run -S KEY=VALUE` sets one for a run"
    if given[0] in ("-h", "--help"):
        print(f"stage {name} of `dvc repro`: {about}. It takes no arguments: {values}")
        sys.exit(0)
    raise UserError(f"a stage takes no arguments, not {' '.join(given)}: {values}")


def _require_lasting(config: configuration.Config) -> None:
    """Raise UserError where DVC runs an experiment in a folder of its own, which it removes at the
    end, and checkpoints or MLflow's runs would go with it."""
    if TEMPORARY not in Path.cwd().resolve().as_posix():
        return
    # With a bucket what MLflow has not taken yet is kept in the project.
    stays = Path(config.cluster.storage).is_absolute()
    if not stays or not submit.is_lasting(
        config.tracking.uri or os.environ.get("MLFLOW_TRACKING_URI")
    ):
        raise UserError(
            "DVC removes this folder when the experiment has ended (`dvc exp run --temp`, or of a "
            "queue), and with it checkpoints and MLflow's runs: set cluster.storage to a full "
            "path, and tracking.uri to a server or to sqlite:////FULL/PATH/mlflow.db"
        )


@contextlib.contextmanager
def _unchanged(stage: str, config: configuration.Config) -> Iterator[None]:
    """Raise UserError at the end of a block in which a dependency of the stage has changed.

    DVC reads values, code and files when the stage has ended, for a training maybe days after it
    has read them. Compared are the values that dvc.yaml names, where there is one, what the code
    means, `dvc_stages.deps_now`, and what `data.folder` holds, where the stage depends on that.
    """
    project = Path.cwd()
    stages = dvc_stages.described(project) if (project / "dvc.yaml").exists() else {}
    description = stages.get(stage, {})
    entries = description.get("params", ())
    named = tuple(f"{key}." for key in entries if isinstance(key, str))

    def values_of(config: configuration.Config) -> dict[str, Any]:
        values = configuration.flatten(config).items()
        return {f"params.yaml: {k}": value for k, value in values if f"{k}.".startswith(named)}

    def code() -> dict[str, str]:
        return dvc_stages.code(project, stage) if stage in stages else {}

    values, began = values_of(config), code()
    if began:
        _require_recorded(project, stage, began)
    folder = _recorded_folder(project, config, entries)
    deps = dvc_stages.deps_now(project, description)
    yield
    now = values_of(configuration.load(PARAMS)) | code() | dvc_stages.deps_now(project, description)
    now |= {name: dvc_stages.meaning_of_folder(project, config) for name in folder}
    changed = code_fingerprint.differences(values | began | folder | deps, now)
    if changed:
        raise UserError(
            f"changed while this ran: {first_of(changed)}; the result is that of the old values: "
            "undo the change, or keep it for a new result, and run `dvc repro` "
            "(a finished training is not repeated)"
        )


def _require_recorded(project: Path, stage: str, code: Mapping[str, str]) -> None:
    """Raise UserError where a stage's code is not what code.json, which DVC records, says of it:
    its result would pass for that of other code."""
    path = project / dvc_stages.CODE_FILE
    recorded = read_json(path).get(stage) if path.exists() else None
    if recorded and recorded != code_fingerprint.of_parts(code):
        raise UserError(
            "the code, or what params.yaml names of it, has changed since `dvc repro` began: run "
            "`dvc repro` again"
        )


def _recorded_folder(
    project: Path, config: configuration.Config, params: Iterable[Any]
) -> dict[str, str]:
    """What code.json says of `data.folder`, by its name; nothing for a stage that does not depend
    on it, nor where the folder is not there, as in a job that reads none of it.

    In a job what its copy holds, which may be a part: what code.json says is of the folder at home.
    params: the entries of dvc.yaml.
    """
    path, folder = project / dvc_stages.CODE_FILE, config.data.folder
    keys = [entry.get(dvc_stages.CODE_FILE) or () for entry in params if isinstance(entry, dict)]
    if not any(dvc_stages.FOLDER in named for named in keys) or not Path(folder).exists():
        return {}
    if entrypoint.is_inside():
        return {folder: dvc_stages.meaning_of_folder(project, config)}
    recorded = read_json(path).get(dvc_stages.FOLDER) if path.exists() else None
    return {folder: recorded} if recorded else {}


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    # What Ctrl-C raises, so that runs are closed and Ray is shut down on the way out.
    raise KeyboardInterrupt


TRAINING = "seq2sweep.train.loop"
"""The module whose code computes weights from data."""


def code_of(program: str) -> dict[str, str]:
    """The meaning of each module that can change what this module of ours computes."""
    return code_fingerprint.parts(program, *dvc_stages.roots(Path.cwd()))


def origin(header: dict[str, Any], config: configuration.Config | None = None) -> Origin:
    """All that determines a training's result: data, vocabulary, the code that computes, and of
    the training of `config` its parameters. So changed code never finds the run of the code before.

    header: of the encoded data. Without config it is what all trials of a sweep have alike.
    """
    from seq2sweep.runs.warm_start import Origin  # here: torch takes a second to load

    code = code_of(TRAINING)
    identity = configuration.identity(config, "model", "train") if config else {}
    return Origin(identity | _made_of(header, code), code, config.train.log_every if config else 1)


def source(name: str, header: dict[str, Any], program: str = TRAINING) -> Source:
    """What a stage computes from, to be recorded with its runs: call it when the stage begins.

    header: of the encoded data; program: the module that computes.
    """
    from seq2sweep.reproduce.run_record import Source  # here: torch takes a second to load

    return Source.of(Path.cwd(), name, _made_of(header, code_of(program)))


def _made_of(header: dict[str, Any], code: dict[str, str]) -> dict[str, str]:
    """Fingerprints of data and code, by name."""
    return {
        "data": header["fingerprint"],
        "vocabulary": header["vocabulary"]["fingerprint"],
        "code": code_fingerprint.of_parts(code),
    }


def training_header(config: configuration.Config, encoded: Path = ENCODED) -> dict[str, Any]:
    """Of the encoded data, whose files are verified. UserError where they have changed, or trees
    have more symbols than the model's target."""
    files.verify(encoded, "train", "valid")
    header = read_training_header(encoded)
    found, known = header.get("symbols", 0), config.model.target_symbols
    if found > known:
        raise UserError(
            f"model.target_symbols is {known} but the trees have {found} symbols: set it to {found}"
        )
    return header


def for_workers(config: configuration.Config, encoded: Path, data: str) -> Path:
    """The full path of a folder of encoded data by which workers read it, or get a copy.

    data: the fingerprint of the encoded data.
    """
    if configuration.is_address(config.cluster.storage):  # a bucket's nodes get copies
        return encoded.resolve()
    storage = (Path.cwd() / config.cluster.folder).resolve()
    return entrypoint.seen_by_all_nodes(encoded, storage, data)


def lineage(config: configuration.Config, header: dict[str, Any], **more: Path) -> dict[str, str]:
    """Where a result comes from, to the byte: code, parameters, data, versions, hardware.

    header: of the encoded data. more: inputs besides the data, by name.
    """
    data = {"dataset": header["fingerprint"], "vocabulary": header["vocabulary"]["fingerprint"]}
    known = dvc_stages.sums(Path.cwd())
    paths = {"raw": RAW, "clean": CLEAN, "vocabulary": VOCABULARY, "encoded": ENCODED} | more
    inputs = {
        # Of the output that is the path or holds it.
        name: next((known[str(p)] for p in (path, *path.parents) if str(p) in known), UNKNOWN)
        for name, path in paths.items()
    }
    return lineage_tags(Path.cwd(), config, inputs=inputs, data=data)


def evaluation_of(receipt: Mapping[str, Any]) -> str:
    """What the records of a training's evaluation are called, by which the report is attached.

    receipt: of the training. Projects that share a training by their storage, as DVC's experiments
    do, may evaluate it at once.
    """
    here = hashlib.sha256(str(Path.cwd().resolve()).encode()).hexdigest()[:8]
    return f"{receipt['run']}-evaluation-{here}"


def training_run(model: Path, receipt: Mapping[str, Any]) -> dict[str, str | None]:
    """The run that trained the weights of a folder, for `Recorder` to show another below it.

    receipt: of the folder. The run's id is in the stage's metrics: it may have been a job, or of
    another clone of the project.
    """
    try:
        known = read_json(METRICS / f"{model.name}.json").get("mlflow_run_id")
    except UserError:
        known = None  # as where MLflow was away when it ended
    return {"parent": receipt["run"], "parent_id": known}


def dataset_in_words(config: configuration.Config) -> str:
    """What is translated, for the heading of a report."""
    return f"{config.data.source} → {config.data.target}, {config.data.dataset}"


def self_trains(config: configuration.Config) -> bool:
    """Whether a third parser is to be taught by two."""
    return config.self_training.sentences > 0


def leave_unused(folder: Path) -> None:
    """Leave what the folder of a stage that has nothing to do is: DVC warns of empty ones."""
    console.say("nothing to do: self_training.sentences is 0")
    with whole_folder(folder) as made:
        (made / "unused.txt").write_text("self_training.sentences is 0\n")


def on_cluster(cluster: configuration.ClusterConfig) -> bool:
    """Whether this runs in a job on a Ray cluster, or is to join one."""
    return cluster.running_address is not None


def mapper(cluster: configuration.ClusterConfig) -> contextlib.AbstractContextManager[Mapper]:
    """Where there is a cluster, its CPUs, or GPUs, translate: this machine may have none."""
    if not on_cluster(cluster):
        return contextlib.nullcontext(serial)
    from seq2sweep.cluster.tasks import ray_mapper  # here: Ray takes seconds to load

    return ray_mapper(cluster)


def write_metrics(name: str, all_of_them: Any, shown: Mapping[str, float | None]) -> None:
    """Write metrics/NAME.json, and of it in metrics/dvc/NAME.json what DVC shows.

    DVC makes a column of every key and a word wide of every string: few numbers fit a screen.
    """
    write_json(METRICS / f"{name}.json", all_of_them)
    known = {key: value for key, value in shown.items() if value is not None}
    write_json(METRICS / "dvc" / f"{name}.json", known)
