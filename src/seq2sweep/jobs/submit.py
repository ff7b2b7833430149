"""Submit or attach: a stage as a job on a cluster, once for the same code, parameters and data.

The job's id is made from these three. Whoever asks for it again, from whichever machine, gets the
finished one's results, follows the one that is running, or restarts the one that failed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from seq2sweep import config as configuration
from seq2sweep import console
from seq2sweep.config import Config
from seq2sweep.console import say
from seq2sweep.data.sources import check_inside
from seq2sweep.errors import EXIT_INTERRUPTED, EXIT_USER_ERROR, OperationalError, UserError
from seq2sweep.health import Finding
from seq2sweep.jobs import bundle, dvc_stages, entrypoint, results
from seq2sweep.jobs.results import Storage
from seq2sweep.redaction import redact, secrets_in
from seq2sweep.tracking import check_address

if TYPE_CHECKING:
    from seq2sweep.cluster.job_client import JobServer

NO_RESULT = {"cluster", "download", "tracking"}
"""Sections that change no result: with another value of theirs it is the same job."""
ENTRY = "python -m seq2sweep.jobs.entrypoint"
# As in the environment of `make`; the copy's library comes before an installed one.
VARIABLES = {"PYTHONPATH": "src", "DVC_NO_ANALYTICS": "1"}


@dataclass(frozen=True)
class Order:
    """A job before it is submitted.

    inputs: for each path that is taken from here its sum; empty when the stages before the one
    that is asked for run in the cluster too. meaning: with inputs, what dvc_stages.CODE_FILE is.
    """

    project: Path
    job: str
    stage: str
    content: bundle.Upload
    commit: str
    inputs: dict[str, str]
    meaning: dict[str, str]


def runs_as_job(config: Config) -> bool:
    """Whether a stage is to run as a job: a job server is set, and this is not yet one."""
    return config.cluster.job_server is not None and not entrypoint.is_inside()


def order(project: Path, config: Config, stage: str, *, current: bool | None = None) -> Order:
    """What would be submitted; nothing leaves this machine.

    current: what is known of whether all that the stage reads is up to date; None asks DVC.
    """
    if stage != dvc_stages.ALL and stage not in (known := dvc_stages.described(project)):
        raise UserError(f"there is no stage {stage}: give one of {', '.join(known)}, or all")
    _check_no_password(config)  # before the files: it names the key
    content = bundle.collect(project)
    for path in ("dvc.yaml", "params.yaml"):
        if path not in content.files:
            raise UserError(
                f"{path} would not be uploaded, and no job can run without it: git or .rayignore "
                "ignores it; take it out there, or, where a folder above is the repository, make "
                "the project one by `git init`"
            )
    inputs = _inputs(project, stage, current)
    _require_texts(config, dvc_stages.running_in_job(project, stage), content)
    meaning = dvc_stages.meaning(project, config) if inputs else {}
    identity = {
        "stage": stage,
        "code": content.fingerprint(),
        "params": configuration.chosen(config, *(vars(config).keys() - NO_RESULT)),
        "data": inputs,
        **dvc_stages.folder_of_job(project, config, stage, meaning),
    }
    text = json.dumps(identity, sort_keys=True)
    job = f"{stage}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    return Order(project, job, stage, content, bundle.commit(project), inputs, meaning)


def overview(wanted: Order) -> str:
    """The order for a reader."""
    files = wanted.content.files
    lines = [f"{len(content):>10,}  {path}" for path, content in files.items()]
    lines += [f"  left out  {path}: {why}" for path, why in wanted.content.left_out.items()]
    lines.append(f"{len(files)} files, {bundle.mebibytes(wanted.content.bytes)}, would be uploaded")
    if wanted.inputs:
        lines.append(f"from here, by cluster.storage: {', '.join(wanted.inputs)}")
    else:
        lines.append("the stages before it would run in the cluster too")
    lines += [f"commit {wanted.commit}", f"job {wanted.job}"]
    return "\n".join(lines)


def run(config: Config, wanted: Order, address: str | None = None, *, detach: bool = False) -> None:
    """Submit or attach, and follow until the results are in the storage; detach: do not follow.

    Raises UserError and OperationalError with the job's own reason, and KeyboardInterrupt (after a
    line) when the job was interrupted or keeps running without being followed.
    """
    storage, made = results.storage_at(config.cluster.storage), results.of_job(wanted.job)
    if results.is_complete(storage, made):
        say(f"{wanted.job} has finished; its results are in {storage.address}/{made}")
        return
    # Ray takes a second to load.
    from seq2sweep.cluster.job_client import JobServer

    server = JobServer(_address(config, address))
    failures, most, submitting = 0, config.cluster.max_failures, f"submitting {wanted.job}"
    with console.never_silent(submitting):
        while (name := _submit_or_attach(server, config, wanted, storage)) is not None:
            if detach:
                say(_how_to_attach(server, name, wanted.stage))
                return
            killed = _follow(server, name, wanted.stage, storage)
            if killed is None:
                break
            failures += 1
            if failures > most:
                raise OperationalError(f"{killed}; submit again to restart it")
            say(f"{killed}; restart {failures} of {most} (cluster.max_failures)")
            console.doing(submitting)
    if not results.wait_for(storage, made + results.MANIFEST, entrypoint.LAG_SECONDS):
        raise OperationalError(
            f"{name} has finished, but its results are not in {storage.address}/{made} as seen here"
        )


def run_stage(project: Path, config: Config, stage: str) -> None:
    """Run a stage as a job: submit or attach, follow, and download the outputs to their places.

    For a stage that DVC has called, so all that it reads is up to date.
    """
    wanted = order(project, config, stage, current=True)
    run(config, wanted)
    storage = results.storage_at(config.cluster.storage)
    expected = dvc_stages.outputs(project, stage)
    made = results.get(storage, results.of_job(wanted.job), project, expected)
    say(f"downloaded from {storage.address}: {', '.join(made)}")


def examine(config: Config, address: str, project: Path) -> list[Finding]:
    """Would a job be taken? What `seq2sweep doctor` looks at where cluster.job_server is set.

    What would be uploaded, what records, and whether the job server answers and takes our token:
    nothing leaves this machine but a question to that.
    """

    def package() -> str:
        content = bundle.collect(project)
        return f"{len(content.files)} files, {bundle.mebibytes(content.bytes)}"

    def records() -> str:
        check_records_stay(config)
        return "go to a store that outlives the job"

    def server() -> str:
        from seq2sweep.cluster.job_client import JobServer

        JobServer(address)
        return f"{address} answers, and takes our token"

    found = []
    checks = {"package": package, "records of a job": records, "job server": server}
    for what, check in checks.items():
        try:
            found.append(Finding("this machine", what, "well", check()))
        except UserError as error:
            found.append(Finding.of_error("this machine", what, str(error)))
    return found


# --- steps ---------------------------------------------------------------------------------------


def _inputs(project: Path, stage: str, current: bool | None) -> dict[str, str]:
    """What the stage reads and other stages have made here, with its sums."""
    read, sums = dvc_stages.inputs(project, stage), dvc_stages.sums(project)
    if not read or not all(path in sums and (project / path).exists() for path in read):
        return {}
    if current is None:
        current = not dvc_stages.changes(project, *sorted(set(read.values())))
    elif current:  # so DVC says, or who runs the stage without it
        for path in read:
            if dvc_stages.sum_of(project / path) != sums[path]:
                raise UserError(f"{path} is not what dvc.lock has: run `dvc repro`, which makes it")
    return {path: sums[path] for path in read} if current else {}


def _require_texts(config: Config, running: Sequence[str], content: bundle.Upload) -> None:
    """Raise UserError where a file that one of these stages reads is outside of `data.folder`, or
    not uploaded: the job would fail when what comes before has been trained."""
    attention, parsing = config.attention, config.self_training
    read: dict[str, tuple[str, Sequence[str | None]]] = {
        "attention.alignments": ("attention", [attention.alignments] * bool(attention.sentences)),
        "self_training.files": ("silver", parsing.files * bool(parsing.sentences)),
    }
    for key, (stage, names) in read.items():
        wanted = [name for name in names if name and stage in running]
        check_inside(key, wanted)
        paths = [os.path.normpath(Path(config.data.folder) / name) for name in wanted]
        # A folder with a full path may be one that all nodes see.
        missing = [p for p in paths if not os.path.isabs(p) and p not in content.files]
        if missing:
            raise UserError(
                f"{key}: {missing[0]} is missing, or git or .rayignore ignores it, and the stage "
                f"{stage} of the job would read it: add it to git, or run `dvc repro` here with "
                "cluster.job_server, by which only trainings are jobs"
            )


def _check_no_password(config: Config) -> None:
    for key, value in configuration.flatten(config).items():
        fix = "leave it out, and put it into the environment of all nodes"
        if key == "tracking.uri":
            fix = "set it to null, $MLFLOW_TRACKING_URI to the address and "
            fix += "cluster.job_environment to [MLFLOW_TRACKING_URI]"
        if found := secrets_in(json.dumps(value, ensure_ascii=False)):
            raise UserError(
                f"{key} holds {found[0].what}, which would be uploaded with params.yaml: {fix}"
            )
    check_address(config.tracking.uri or "", "tracking.uri")  # in which one would not be found


def check_records_stay(config: Config, wanted: Order | None = None) -> None:
    """Refuse to record into the job's copy of the project, which goes when the job has ended.

    Some jobs record nothing (`records_nothing`); without an order it is of any other. Whether
    a server answers is not asked: it may be one that only the cluster reaches. Raises UserError.
    """
    if wanted and dvc_stages.records_nothing(wanted.project, wanted.stage, bool(wanted.inputs)):
        return
    variable, key, uri = "MLFLOW_TRACKING_URI", "tracking.uri", config.tracking.uri
    if not uri and variable in config.cluster.job_environment:
        key, uri = f"${variable}", os.environ.get(variable)
    check_address(uri or "", key)
    if is_lasting(uri):
        return
    problem = f"tracking.uri is null, and the job gets no ${variable} from here"
    if uri:
        problem = f"{key} is {redact(uri)}, which is no server"
    raise UserError(
        f"{problem}: what the job records in MLflow would be lost when it ends; set tracking.uri "
        f"to a server that the cluster reaches (http://HOST:5000), or set ${variable} to it and "
        "name that in cluster.job_environment"
    )


def is_lasting(uri: str | None) -> bool:
    """Whether what is recorded at a tracking URI stays when the folder of the project goes: at a
    server, or beside SQLite's file elsewhere. Of other databases files lie in the project."""
    return (uri or "").startswith(("http://", "https://", "sqlite:////"))


def _address(config: Config, address: str | None) -> str:
    found = address or config.cluster.job_server or os.environ.get("RAY_API_SERVER_ADDRESS")
    if not found:
        raise UserError(
            "no cluster to submit to: set cluster.job_server (http://host:8265), --address or "
            "$RAY_API_SERVER_ADDRESS"
        )
    return found


def _submit_or_attach(
    server: JobServer, config: Config, wanted: Order, storage: Storage
) -> str | None:
    """The name of the attempt to follow; None if the job has finished meanwhile."""
    from seq2sweep.cluster.job_client import attempt, attempt_name

    while True:
        newest = server.newest(wanted.job)
        number = attempt(wanted.job, newest.submission_id) if newest else 0
        if newest is not None and not newest.status.is_terminal():
            name = attempt_name(wanted.job, number)
            there = (newest.metadata or {}).get("storage")
            if there != storage.address:
                raise UserError(
                    f"{name} is running already, with cluster.storage {there}: set the same, or "
                    "wait for its end"
                )
            say(f"{name} is {newest.status.value.lower()}: attached; its log from the beginning:")
            return name
        if results.is_complete(storage, results.of_job(wanted.job)):
            return None
        name = attempt_name(wanted.job, number + 1)
        if _submit(server, config, wanted, storage, name):
            ended = {"FAILED": "failed", "STOPPED": "was stopped"}
            why = newest and ended.get(newest.status, "has left no results here")
            say(f"{name} submitted" + (f", as {newest.submission_id} {why}" if newest else ""))
            return name
        # Somebody else submitted it in this moment.


def _submit(server: JobServer, config: Config, wanted: Order, storage: Storage, name: str) -> bool:
    from seq2sweep.cluster.job_client import JobRefusedError

    # Not of a job that is attached to or has finished: where it records has been decided.
    check_records_stay(config, wanted)
    given = results.values_of(config.cluster.job_environment)
    for path, total in wanted.inputs.items():
        results.put(wanted.project, [path], storage, results.of_input(total, path))
    about = {"stage": wanted.stage, "commit": wanted.commit, "storage": storage.address}
    told = json.dumps(about | {"job": wanted.job, "inputs": wanted.inputs}, indent=2).encode()
    storage.write(results.of_job(wanted.job, results.ORDER), told)
    # Those of attempts that ended before they had begun.
    known = {_values(job.metadata): job.status.is_terminal() for job in server.jobs()}
    results.remove_values(storage, known.get)
    files = wanted.content.files | {entrypoint.DESCRIPTION: told}
    files.pop("dvc.lock", None)
    if wanted.inputs:
        files["dvc.lock"] = dvc_stages.lock_of_inputs(wanted.project, wanted.stage)
        files[dvc_stages.CODE_FILE] = json.dumps(wanted.meaning, indent=2).encode()
    variables = VARIABLES | {"SEQ2SWEEP_COMMIT": wanted.commit}
    values = None
    if config.cluster.job_environment:
        # Not in the job's settings: Ray writes them into its logs.
        values = about[entrypoint.VALUES] = results.values_name(name)
    with tempfile.TemporaryDirectory(prefix="s2s-job-") as folder:
        archive = Path(folder) / "project.zip"
        bundle.write_zip(archive, files)
        if values is not None:
            storage.write_private(values, given)
        # Without an answer, or interrupted, the job may be there and want its values.
        taken = True
        try:
            taken = server.submit(name, ENTRY, archive, variables, **about)
        except JobRefusedError:
            taken = False
            raise
        finally:
            if values is not None and not taken:
                storage.delete(values)
    return taken


def _values(metadata: Mapping[str, str] | None) -> str | None:
    """Which values an attempt with this metadata is to take, if it takes any."""
    return (metadata or {}).get(entrypoint.VALUES)


def _follow(server: JobServer, name: str, stage: str, storage: Storage) -> str | None:
    """Show the log until the job ends well (None) or is killed: gives the line that says so.

    Raises what `run` does for a job that ended otherwise, or is followed no longer.
    """
    from seq2sweep.cluster.job_client import JobServerAwayError, did_not_start

    tail = ""

    def write(text: str) -> None:
        nonlocal tail
        say(text, end="")
        tail = (tail + text)[-entrypoint.TAIL :]

    try:
        console.doing(f"{name} is running, and its log has nothing new")
        ended = server.follow(name, write)
    except (KeyboardInterrupt, JobServerAwayError) as error:
        away = isinstance(error, JobServerAwayError)
        why = "the job server does not answer" if away else "detached"
        say(f"\n{why}. {_how_to_attach(server, name, stage)}")
        raise KeyboardInterrupt from None
    if values := _values(ended.metadata):
        storage.delete(values)  # it may never have begun
    if ended.status == "SUCCEEDED":
        return None
    line = re.sub(r"^seq2sweep \w+: ", "", entrypoint.reason(tail or ended.message or ""))
    if ended.status == "STOPPED" or ended.driver_exit_code == EXIT_INTERRUPTED:
        say(f"{name} was {'stopped' if ended.status == 'STOPPED' else f'interrupted: {line}'}")
        raise KeyboardInterrupt
    if ended.driver_exit_code == EXIT_USER_ERROR:
        raise UserError(line)
    if did_not_start(ended):  # the log may say only what Ray did before
        raise OperationalError(f"{name} did not start: {entrypoint.reason(ended.message or tail)}")
    if entrypoint.was_killed(ended.driver_exit_code):
        return f"{name} was killed, by hand or by the system (out of memory?): {line}"
    raise OperationalError(f"{name} failed: {line}; submit again to restart it")


def _how_to_attach(server: JobServer, name: str, stage: str) -> str:
    from seq2sweep.cluster.job_client import in_shell

    return (
        f"{name} keeps running. Attach: seq2sweep submit {stage} --address {server.address}. "
        f"Stop it: {in_shell(server.address)} ray job stop {name}"
    )
