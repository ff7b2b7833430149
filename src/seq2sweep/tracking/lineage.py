"""Where a result comes from: code, data, parameters, libraries and machine, as tags and
as a file of a run.

Secrets are masked in them, and the folders of the project and of the user relative: a tracking
server is shared. What a run is made again with needs `data.folder` as it is, and is elsewhere
(`reproduce/params.yaml`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import socket
import sys
from collections.abc import Collection, Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from seq2sweep import config as configuration
from seq2sweep.git_command import GitError, git
from seq2sweep.tracking.recorder import clean_tags, params_as_text

UNKNOWN = "unknown"
CPUINFO = Path("/proc/cpuinfo")
LINEAGE = "lineage.json"
"""The file of a run that says where it comes from; see `document`."""

EXPERIMENT = "seq2sweep"
"""`tracking.experiment` of each preset."""

GIT_SECONDS = 60.0

TOKENS_PER_PASS = "train.tokens_per_pass"

LIBRARIES = ("torch", "ray", "mlflow", "dvc", "sentencepiece", "sacrebleu", "numpy")


def lineage_tags(
    project: Path,
    config: configuration.Config,
    *,
    inputs: Mapping[str, str],
    data: Mapping[str, str],
) -> dict[str, str]:
    """All that determines a result, by name; "unknown" for what cannot be found out.

    `inputs` are sums of DVC outputs by name, recorded as `input.<name>`; `data` are fingerprints by
    name, recorded as `data.<name>`.
    """
    installed = _installed()
    return {
        **code(project),
        **{f"input.{name}": value for name, value in inputs.items()},
        **{f"data.{name}": value for name, value in data.items()},
        "params.sha256": configuration.fingerprint(config),
        "version.python": platform.python_version(),
        **{f"version.{name}": installed.get(name, UNKNOWN) for name in LIBRARIES},
        "environment.sha256": hashlib.sha256(environment().encode()).hexdigest(),
        "host": socket.gethostname(),
        "platform": platform.platform(),
        **hardware(),
    }


def made_by(lineage: Mapping[str, str]) -> dict[str, str]:
    """Of a lineage the code, libraries and machine that made a result, without data and values."""
    which = ("git.", "version.", "environment.", "hardware.", "host", "platform")
    return {key: value for key, value in lineage.items() if key.startswith(which)}


def same_machine(now: Mapping[str, str], then: Mapping[str, str]) -> bool:
    """Whether a result that was made by `then` would be made by the same libraries and machine
    now; both as of `made_by`. Code is the same by its meaning, whatever the commit."""
    wanted = {key: value for key, value in now.items() if not key.startswith(("git.", "host"))}
    return wanted.items() <= then.items()


def of_several(lineages: Collection[Mapping[str, str]]) -> dict[str, str]:
    """What several lineages say; where they differ, all that they say, with commas between."""
    keys = dict.fromkeys(key for lineage in lineages for key in lineage)
    said = {key: [lineage.get(key, UNKNOWN) for lineage in lineages] for key in keys}
    return {key: ", ".join(dict.fromkeys(values)) for key, values in said.items()}


def tags(lineage: Mapping[str, str]) -> dict[str, str]:
    """What of a lineage MLflow shows beside a run, and finds it by: the commit and the program."""
    dirty = {"git.dirty": lineage["git.dirty"]} if "true" in lineage.get("git.dirty", "") else {}
    main = getattr(sys.modules["__main__"], "__spec__", None)
    return {
        "git.commit": lineage["git.commit"],
        "mlflow.source.git.commit": lineage["git.commit"],
        "mlflow.source.name": main.name if main else Path(sys.argv[0]).name,
        "mlflow.source.type": "LOCAL",
        **dirty,
    }


def other_tags(lineage: Mapping[str, str]) -> dict[str, str]:
    """`tags` for a run that has those of another lineage: also that there were no changes."""
    return tags(lineage) | {"git.dirty": lineage.get("git.dirty", UNKNOWN)}


def parameters(config: configuration.Config, *sections: str) -> dict[str, Any]:
    """What of these sections MLflow shows beside a run: values that say something.

    A train.tokens_per_pass of auto is recorded when it is known how many they are.
    """
    values = configuration.flatten(config, *sections).items()
    return {
        key: value
        for key, value in values
        if value not in (None, [], {}) and (key, value) != (TOKENS_PER_PASS, "auto")
    }


def document(
    lineage: Mapping[str, str],
    config: configuration.Config,
    more: Mapping[str, str] | None = None,
    without: Collection[str] = (),
) -> str:
    """The text of `lineage.json`: a lineage, and as `params` all of params.yaml by dotted key.

    config: of this run, such as a trial's. more: what else is known. without: keys that the run has
    no value for.
    """
    whole = configuration.flatten(config).items()
    # Not cut, as for MLflow: this is a file.
    params = params_as_text({key: value for key, value in whole if key not in without})
    own = {"params.sha256": configuration.fingerprint(config, without=without)}
    known = clean_tags({**lineage, **own, **(more or {})})
    return json.dumps({**known, "params": params}, indent=1, ensure_ascii=False) + "\n"


def origin_tags(trained: Mapping[str, Any]) -> dict[str, str]:
    """On what a training was computed, as far as its journal says, by name."""
    from seq2sweep import hardware as devices  # imports torch, which takes seconds

    return {
        "hardware.cpu_features" if key == "cpu_features" else f"run.{key}": str(trained[key])
        for key in devices.ORIGIN
        if trained.get(key) is not None
    }


def dataset_name(data: configuration.DataConfig, split: str) -> str:
    """What MLflow calls a split of the data."""
    return f"{data.dataset} {data.source}-{data.target} {split}"


def registered_name(config: configuration.Config) -> str:
    """Of the registered model whose versions translate this data.

    All projects call text of their own alike: an experiment that has a name of its own tells them
    apart.
    """
    data, experiment = config.data, config.tracking.experiment
    own = data.dataset in ("files", "ptb") and experiment != EXPERIMENT
    name = f"{data.dataset}-{data.source}-{data.target}"
    # Of a registry of one's own a name may have what MLflow does not take, or searches stumble at.
    return re.sub(r"[/:']", "-", f"{experiment}-{name}" if own else name)


def code(project: Path, of: Iterable[str] = configuration.DECISIVE) -> dict[str, str]:
    """`git.commit`, and `git.dirty`: whether files that determine a result differ from it.

    of: those files, or some of them.

    Without git, as in a Ray job's copy of the project, $SEQ2SWEEP_COMMIT says the commit; an
    ending `-dirty` says that the copy was made from changed files.
    """

    def ask(*arguments: str) -> str | None:
        with contextlib.suppress(GitError):
            return git(project, *arguments, seconds=GIT_SECONDS).decode().strip()
        return None

    commit = ask("rev-parse", "--verify", "HEAD") if has_project(project) else None
    if commit is None:
        commit, _, ending = os.environ.get("SEQ2SWEEP_COMMIT", UNKNOWN).partition("-")
        return {"git.commit": commit, "git.dirty": "true" if ending == "dirty" else UNKNOWN}
    changes = ask("status", "--porcelain", "--untracked-files=all", "--", *of)
    dirty = UNKNOWN if changes is None else str(changes != "").lower()
    return {"git.commit": commit, "git.dirty": dirty}


def has_project(project: Path) -> bool:
    """Whether git has files of it, or would take them: a repository around it may ignore it."""
    known = ("ls-files", "--cached", "--others", "--exclude-standard", "--")
    with contextlib.suppress(GitError):
        return bool(git(project, *known, *configuration.DECISIVE, seconds=GIT_SECONDS))
    return False


def _installed() -> dict[str, str]:
    """The version of each package, by its name in the form of PEP 503.

    Of one that is there twice, that which Python imports: the first on its path.
    """
    found: dict[str, str] = {}
    for package in metadata.distributions():
        # A pip that was killed leaves a folder without METADATA: no name, or an error of
        # importlib_metadata's.
        with contextlib.suppress(FileNotFoundError):
            if package.name:
                found.setdefault(re.sub(r"[-_.]+", "-", package.name).lower(), package.version)
    return found


def environment() -> str:
    """Each installed package and its version, sorted, as `pip install --no-deps -r` reads it.

    Not seq2sweep itself, which the commit names.
    """
    found = sorted(_installed().items())
    return "".join(f"{name}=={version}\n" for name, version in found if name != "seq2sweep")


def hardware() -> dict[str, str]:
    """Processor, cores, memory and GPUs of this machine."""
    return {
        "hardware.cpu": processor(),
        "hardware.cores": str(os.cpu_count() or UNKNOWN),
        "hardware.memory": f"{psutil.virtual_memory().total / 2**30:.1f} GiB",
        "hardware.gpu": _gpus(),
    }


def processor() -> str:
    """The name of this machine's processor, and its family and model where the system tells them:
    a virtual machine may call several generations by one name."""
    told: dict[str, str] = {}
    with contextlib.suppress(OSError):
        first = CPUINFO.read_text(encoding="utf-8").partition("\n\n")[0]
        for key, _, value in (line.partition(":") for line in first.splitlines()):
            told[key.strip()] = value.strip()
    name = told.get("model name") or platform.processor() or platform.machine() or UNKNOWN
    family, model = told.get("cpu family"), told.get("model")
    return f"{name} (family {family}, model {model})" if family and model else name


def _gpus() -> str:
    """Names of the GPUs that torch sees; torch is imported here since it takes seconds."""
    import torch

    if not torch.cuda.is_available():
        return "none"
    return ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
