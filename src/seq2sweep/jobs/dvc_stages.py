"""What DVC knows of the pipeline, from its files and `dvc status`; nothing else is run here."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

import seq2sweep
from seq2sweep import code_fingerprint, yaml_text
from seq2sweep import config as configuration
from seq2sweep.data import sources
from seq2sweep.errors import OperationalError, UserError
from seq2sweep.paths import read_json, read_text
from seq2sweep.storage.atomic import sha256

ALL = "all"
"""Stands for every stage."""
FINGERPRINT, CODE_FILE = "fingerprint", "code.json"
"""The stage that tells what the code of the others means, and its output, by stage."""
FOLDER = "folder"
"""The key of CODE_FILE with what `data.folder` holds."""
SECTIONS_IN_CODE: dict[str, tuple[str, ...]] = {
    "download": ("parsing",),
    "vocabulary": ("parsing",),
    "encode": ("vocabulary",),  # a key to come may change how text is cut, and no vocabulary
    "teacher": ("self_training",),
    "silver": ("self_training", "evaluate"),
    "table1": ("table1",),
    "attention": ("attention",),
}
"""Stages that read a section that params.yaml may leave out, or only in part, and which."""
NOT_READ = {
    "download": ("parsing.tags", "parsing.words"),
    "silver": ("evaluate.beam", "evaluate.tokens_per_batch"),
    "teacher": tuple(f"self_training.{key}" for key in ("sentences", "files", "beam")),
}
"""Keys of these that change nothing of a stage: a download is the same however trees are written;
silver has a beam of its own and parses the same in other batches; a teacher is the same however
many sentences it is to parse, of whichever files."""
LOCK_TIMES = 16
"""How many times as long as params.yaml dvc.lock may be."""
WHOLE_BYTES = 64 << 20
"""Of a file that is read whole to see whether it has changed."""
DATA = "data/"
"""What lies here is made from texts, not by training."""


def described(project: Path) -> dict[str, dict[str, Any]]:
    """What dvc.yaml says of each stage. Raises UserError where there is none that can be read."""
    try:
        text = read_text(project / "dvc.yaml", "call this in the project's folder")
        stages = yaml_text.read_yaml(text)["stages"]
        return {name: dict(description) for name, description in stages.items()}
    except yaml.YAMLError as error:
        raise UserError(yaml_text.problem(error, "dvc.yaml")) from None
    except (KeyError, TypeError, ValueError, AttributeError):
        raise UserError("dvc.yaml has no `stages` that can be read") from None


def roots(project: Path) -> tuple[Path, Path]:
    """The folders that the modules of the library, and of the stages, lie in."""
    return Path(seq2sweep.__file__).parents[1], project


def require_own_code(project: Path) -> None:
    """Raise UserError where a project has a library of its own and another runs.

    As after `git worktree add`, with the first folder's .venv: what that one computes would be
    recorded as of the code here.
    """
    own, running = project / "src/seq2sweep", Path(seq2sweep.__file__).parent
    if own.is_dir() and not own.samefile(running):
        raise UserError(
            f"this Python has the seq2sweep of {running.resolve().parent}, not of this folder: "
            f"run `make install` here, or set PYTHONPATH={own.resolve().parent}"
        )


def code(project: Path, stage: str) -> dict[str, str]:
    """`code_fingerprint.parts` of a stage: the meaning of each module that can change its result.

    Of parts of the model that come in kinds, which are no imports, those that params.yaml names.
    And what SECTIONS_IN_CODE hold: DVC itself fails where a parameter is not there.
    Nothing of a stage that is no module of ours. Raises UserError for a module that is no Python.
    """
    description = described(project)[stage]
    found = re.search(r"-m (pipeline\.\w+)", str(description.get("cmd")))
    parts = code_fingerprint.parts(found[1], *roots(project)) if found else {}
    of_kinds, sections = "seq2sweep.model.components" in parts, SECTIONS_IN_CODE.get(stage, ())
    if not (of_kinds or sections) or not (project / "params.yaml").exists():
        return parts
    config = configuration.load(project / "params.yaml")
    if of_kinds:
        named = [entry for entry in description.get("params") or () if isinstance(entry, str)]
        parts |= configuration.code_of_kinds(config, "model", *named)
    for section in sections:
        told = configuration.fingerprint(config, section, without=NOT_READ.get(stage, ()))
        parts[f"params.yaml: {section}"] = told
    if stage == "teacher" and config.self_training.sentences:
        parts["params.yaml: self_training.sentences"] = "above 0"
    return parts


def meaning(project: Path, config: configuration.Config) -> dict[str, str]:
    """What CODE_FILE is to hold: what the code of each stage means, and FOLDER, where that is not
    here as dvc.lock has it. Raises as `code`."""
    here = (project / config.data.folder).exists()
    recorded = {} if here else params(project, "download", CODE_FILE)
    found = {FOLDER: recorded.get(FOLDER) or meaning_of_folder(project, config)}
    for name in described(project):
        if name != FINGERPRINT:
            found[name] = code_fingerprint.of_parts(code(project, name))
    return found


def meaning_of_folder(project: Path, config: configuration.Config) -> str:
    """sha256 (hex) of what `data.folder` holds, which CODE_FILE has as FOLDER."""
    # A folder that data is made from holds code or a registry, as ours do; any other holds text,
    # which may be a translation to Python in train.py.
    text = config.data.dataset in ("files", "ptb")
    return code_fingerprint.of_folder(project / config.data.folder, bytewise=text)


def outputs(project: Path, stage: str) -> list[str]:
    """What a stage leaves behind; for ALL that of every stage, data excepted."""
    return [
        out
        for name, description in described(project).items()
        for out in _outs(description)
        if name == stage or (stage == ALL and not out.startswith(DATA))
    ]


def records_nothing(project: Path, stage: str, from_here: bool) -> bool:
    """Whether a job of it records nothing in MLflow: a stage before training, or table1; silver,
    where what it reads comes from here: else its parsers are trained in the job, and recorded."""
    if stage == ALL:
        return False
    if stage == "silver":
        return from_here
    return stage == "table1" or _makes_data(described(project)[stage])


def inputs(project: Path, stage: str) -> dict[str, str]:
    """What other stages make and a stage reads: the path, and the stage that makes it, but for
    CODE_FILE.

    For ALL: what the stages read that make no data.
    """
    stages = described(project)
    running = _running(stages, stage)
    read = [dep for name in running for dep in _deps(stages[name])]
    return {
        out: name
        for name, description in stages.items()
        if name not in (*running, FINGERPRINT)
        for out in _outs(description)
        if any(dep == out or dep.startswith(f"{out}/") for dep in read)
    }


def deps_now(project: Path, description: dict[str, Any]) -> dict[str, str]:
    """What the deps of a stage are now, by file: the sha256 (hex), or the size of a large one. Of a
    folder its JSON files, which have the sums of all others. Nothing of what is not there.

    description: of the stage, in dvc.yaml.
    """
    found = {}
    for dep in description.get("deps") or ():
        path = project / dep
        with contextlib.suppress(OSError):  # the stage says what it cannot read
            for file in path.rglob("*.json") if path.is_dir() else [path]:
                size = file.stat().st_size
                told = sha256(file) if size <= WHOLE_BYTES else f"{size} bytes"
                found[os.path.relpath(file, project)] = told
    return found


def why_failed(done: subprocess.CompletedProcess[str]) -> str:
    """The line of what a command of DVC said that has the reason."""
    said = done.stderr.strip().splitlines()
    # After an error that it did not expect, DVC's last line says where to ask.
    errors = [line.removeprefix("ERROR: ") for line in said if line.startswith("ERROR: ")]
    return [*errors[-1:], *said[-1:], f"status {done.returncode}"][0]


def changes(project: Path, *stages: str) -> dict[str, list[Any]]:
    """What `dvc status` finds changed, by stage; a stage that only follows another is not there.

    Of code and of `data.folder` what they mean is compared, as if the stage FINGERPRINT had just
    run, which is not told.
    stages: those alone and all before them. Raises OperationalError when DVC cannot say, and
    UserError where a name in `data.folder` is why.
    """
    targets = ("--with-deps", *stages) if stages else ()
    command = [sys.executable, "-m", "dvc", "status", "--json", *targets]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        if (project / "params.yaml").exists():  # what DVC does not name
            sources.check_names(project / configuration.load(project / "params.yaml").data.folder)
        raise OperationalError(f"dvc status failed: {why_failed(done)}")
    found: dict[str, list[Any]] = json.loads(done.stdout or "{}")
    if FINGERPRINT not in described(project):
        return found
    folder = _folder_now(project, found.get(FINGERPRINT, []))
    for stage in _with_those_before(project, stages):
        told = [entry for entry in map(_without_code, found.pop(stage, [])) if entry]
        recorded = params(project, stage, CODE_FILE)
        if folder and recorded.get(FOLDER) not in (None, folder):
            told.insert(0, {"changed deps": {CODE_FILE: {"data.folder": "modified"}}})
        made_by = recorded.get(stage)
        if made_by and made_by != code_fingerprint.of_parts(code(project, stage)):
            sections = " or ".join(SECTIONS_IN_CODE.get(stage, ()))
            either = f"code or {sections} of params.yaml" if sections else "code"
            told.insert(0, {"changed deps": {CODE_FILE: {either: "modified"}}})
        if told:
            found[stage] = told
    found.pop(FINGERPRINT, None)
    return found


def _without_code(entry: Any) -> Any:
    """What DVC says of a stage without what it says of CODE_FILE; empty where that is all."""
    if not isinstance(entry, dict) or "changed deps" not in entry:
        return entry
    left = {path: how for path, how in entry["changed deps"].items() if path != CODE_FILE}
    others = {key: value for key, value in entry.items() if key != "changed deps"}
    return others | ({"changed deps": left} if left else {})


def _folder_now(project: Path, told: Iterable[Any]) -> str | None:
    """What `data.folder` means now; None where it is not here, as where its texts are private.

    told: what DVC says of FINGERPRINT. Where that has seen the folder as it is CODE_FILE has it.
    """
    path, made = project / "params.yaml", project / CODE_FILE
    config = configuration.load(path) if path.exists() else None
    if config is None or not (project / config.data.folder).exists():
        return None
    entries = [entry for entry in told if isinstance(entry, dict)]
    changed = {name for entry in entries for names in entry.values() for name in names}
    # DVC normalises paths, and has those outside of the project in full.
    ours = {os.path.abspath(project / name) for name in (config.data.folder, CODE_FILE)}
    if not made.exists() or ours & {os.path.abspath(project / name) for name in changed}:
        return meaning_of_folder(project, config)
    seen: str | None = read_json(made).get(FOLDER)
    return seen


def _with_those_before(project: Path, wanted: Iterable[str]) -> list[str]:
    """These stages and all that they depend on, or all; FINGERPRINT left out."""
    every = list(described(project))
    waiting, found = list(wanted) or every.copy(), {FINGERPRINT}
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += inputs(project, name).values()
    return [name for name in every if name in found - {FINGERPRINT}]


def reads_folder(project: Path, stage: str) -> bool:
    """Whether a stage, or of ALL one that runs, depends on what `data.folder` holds itself."""
    stages = described(project)
    named = [stages[name].get("params") or () for name in _running(stages, stage)]
    entries = [entry for params in named for entry in params if isinstance(entry, dict)]
    return any(FOLDER in (entry.get(CODE_FILE) or ()) for entry in entries)


def folder_of_job(
    project: Path, config: configuration.Config, stage: str, meaning: dict[str, str]
) -> dict[str, str]:
    """FOLDER, where a job's result depends on it and neither inputs nor what is uploaded tell it.

    meaning: of a job with inputs; else empty. Raises UserError where texts that the nodes would
    read are not here.
    """
    if meaning:
        return {FOLDER: meaning[FOLDER]} if reads_folder(project, stage) else {}
    # A folder of the project is uploaded: code, a registry, texts.
    folder = Path(config.data.folder)
    reads = inputs(project, stage) or reads_folder(project, stage)
    if not (folder.is_absolute() and reads):
        return {}
    if not folder.exists():
        raise UserError(
            f"data.folder, {folder}, is not here, so that other texts there would make no other "
            "job: mount it here as on the nodes, or run `dvc repro encode` where it is"
        )
    return {FOLDER: meaning_of_folder(project, config)}


def sums(project: Path) -> dict[str, str]:
    """The sum of every output that has one, as dvc.lock has it. Raises UserError."""
    with _reading_lock(project) as stages:
        found = {
            out["path"]: total
            for stage in stages.values()
            for out in stage.get("outs") or ()
            if (total := out.get(out.get("hash", "md5")))
        }
        if not all(isinstance(text, str) for text in (*found, *found.values())):
            raise TypeError
        return found


def sum_of(out: Path) -> str:
    """The sum of a file or folder as dvc.lock would have it, of its bytes as they are now: DVC does
    not read again what it took from its cache."""
    if out.is_dir():
        files = (path for path in out.rglob("*") if path.is_file())
        names = sorted(path.relative_to(out).as_posix() for path in files)
        listed = [{"md5": sum_of(out / name), "relpath": name} for name in names]
        return hashlib.md5(json.dumps(listed).encode()).hexdigest() + ".dir"
    with out.open("rb") as stream:
        return hashlib.file_digest(stream, "md5").hexdigest()


def params(project: Path, stage: str, file: str = "params.yaml") -> dict[str, Any]:
    """The keys of a file that a stage last ran with, as dvc.lock has them; none if never."""
    with _reading_lock(project) as stages:
        return dict(stages.get(stage, {}).get("params", {}).get(file, {}))


def lock_of_inputs(project: Path, stage: str) -> bytes:
    """dvc.lock without what is to run, which DVC might take for done."""
    running = running_in_job(project, stage)
    with _reading_lock(project) as stages:
        kept = {name: about for name, about in stages.items() if name not in running}
    return yaml.safe_dump({"schema": "2.0", "stages": kept}).encode()


@contextlib.contextmanager
def _reading_lock(project: Path) -> Iterator[dict[str, Any]]:
    """The stages of dvc.lock. Raises UserError where the block finds them damaged."""
    file = project / "dvc.lock"
    try:
        # That of a run may be a stranger's (reproduce). DVC writes a list of params.yaml once for
        # each stage that reads it, an entry a line.
        content = yaml_text.read_yaml(read_text(file), LOCK_TIMES) if file.exists() else {}
        yield dict(content.get("stages") or {})
    except (*yaml_text.ERRORS, AttributeError, KeyError):
        raise UserError(
            "dvc.lock is damaged: restore it from git, or remove it and run `dvc repro`"
        ) from None


def running_in_job(project: Path, stage: str) -> list[str]:
    """The stages that run in a cluster whatever was made here, each after what it reads."""
    return _running(described(project), stage)


def _running(stages: dict[str, dict[str, Any]], stage: str) -> list[str]:
    if stage != ALL:
        return [stage]
    return [
        name
        for name, description in stages.items()
        if name != FINGERPRINT and not _makes_data(description)
    ]


def _makes_data(description: dict[str, Any]) -> bool:
    return any(out.startswith(DATA) for out in _outs(description))


def _deps(description: dict[str, Any]) -> Iterator[str]:
    """The files that a stage reads, those with parameters too but for params.yaml."""
    yield from description.get("deps") or ()
    for entry in description.get("params") or ():
        if isinstance(entry, dict):
            yield from entry


def _outs(description: dict[str, Any]) -> Iterator[str]:
    for key in ("outs", "metrics", "plots"):
        for out in description.get(key) or ():
            # With settings it is a mapping of one key.
            yield out if isinstance(out, str) else next(iter(out))
