"""A git worktree in which a run is made again: its code, parameters and data, and nothing else."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from seq2sweep import yaml_text
from seq2sweep.config import is_address
from seq2sweep.errors import OperationalError, UserError, first_of
from seq2sweep.git_command import GitError, git
from seq2sweep.jobs import dvc_stages
from seq2sweep.paths import read_bytes, read_json
from seq2sweep.reproduce import git_tree
from seq2sweep.reproduce.stored_record import FILES, LOCK, PARAMS, PATCH, StoredRecord
from seq2sweep.runs.remote_run_store import RemoteRunStore
from seq2sweep.runs.run_store import RunStore
from seq2sweep.storage.atomic import remove, whole_folder, write_whole
from seq2sweep.tracking.store_reader import StoreReader

KEPT = Path("runs") / "record"
"""Where it has the record: git and DVC ignore `runs`."""
BEGUN = "begun"
"""File there: what it was made for, and in a second line the run that is compared with it."""
OF_WHOEVER_RUNS = ("address", "max_failures", "hang_seconds")
"""Keys of `cluster` that are those of the project here, not of the record."""
STORE = "mlflow.db"
PATIENCE_SECONDS = 60.0
"""For a stage that is to leave, besides what it may take to save."""

Say = Callable[[str], None]


def as_params(values: Mapping[str, Any]) -> str:
    """The text of a params.yaml."""
    return yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True)


@dataclass(frozen=True)
class Worktree:
    """root: of the worktree; project: the project's folder in it, usually the same."""

    root: Path
    project: Path

    @classmethod
    def make(
        cls,
        project: Path,
        root: Path,
        record: StoredRecord,
        params: str,
        begun: tuple[str, str],
        say: Say,
    ) -> Worktree:
        """A worktree of a record's commit with its changes and these params.yaml; the one that is
        there already, if it was made for the same.

        begun: a key of what it is made for, and the id of the run that is compared with it, or "".
        Raises UserError.
        """
        if root.exists() and git_tree.is_half_made(project, root):
            shutil.rmtree(root)
        if root.exists():
            if cls.begun(project, root) == begun:
                say(f"resumes in {root}")
                found = cls(root, root / git_tree.prefix(project))
                found._renew(params)
                return found
            raise UserError(
                f"{root} is there, and not of this run with these settings and libraries: "
                f"{git_tree.how_to_remove(project, root)}, or name another --folder"
            )
        address = record.content["origin"]
        place = git_tree.add_worktree(project, root, record.content["commit"], address)
        made = cls(root, place)
        try:
            made._fill(project, record, params, begun, say)
            git(project, "worktree", "unlock", str(root.resolve()))  # it is whole
        except BaseException:
            with contextlib.suppress(GitError):
                git(project, "worktree", "remove", "--force", "--force", str(root.resolve()))
            raise
        return made

    @staticmethod
    def begun(project: Path, root: Path) -> tuple[str, str] | None:
        """What the one that is there was made for; None where there is none. Raises UserError."""
        if not root.exists():
            return None
        file = root / git_tree.prefix(project) / KEPT / BEGUN
        if not file.exists():
            return None
        key, _, other = read_bytes(file).decode().partition("\n")
        return key, other

    def _renew(self, params: str) -> None:
        """Have what of new parameters changes no result, such as the cluster's address of today."""
        values, new = (
            yaml_text.read_yaml(text)
            for text in (read_bytes(self.project / PARAMS).decode(), params)
        )
        values["cluster"] |= {key: new["cluster"][key] for key in OF_WHOEVER_RUNS}
        values["download"] = new["download"]
        write_whole(self.project / PARAMS, as_params(values))

    def _fill(
        self, project: Path, record: StoredRecord, params: str, begun: tuple[str, str], say: Say
    ) -> None:
        patch = read_bytes(record.folder / PATCH)
        try:
            paths = git_tree.files_of(self.root, patch)
            if paths:
                inside = self.project.relative_to(self.root)
                code = [inside / path for path in git_tree.CODE]
                for path in paths:
                    if not any(Path(path).is_relative_to(place) for place in code):
                        raise UserError(f"{PATCH} of the run changes {path}, which is no code")
                size = f"{len(patch):,} bytes"
                say(f"applies changes.patch of the run ({size}) to {first_of(paths, 5)}")
                git(self.root, "apply", "--whitespace=nowarn", "-", given=patch)
        except GitError as error:
            raise UserError(f"{PATCH} of the run cannot be applied: {error}") from None
        write_whole(self.project / PARAMS, params)
        shutil.copyfile(record.folder / LOCK, self.project / LOCK)
        settings = Path(".dvc") / "config.local"  # remotes with what they ask for
        if (project / settings).is_file():
            shutil.copy(project / settings, self.project / settings)
        cache = self._ask(project, "cache", "dir").strip()
        self._ask(self.project, "config", "--local", "cache.dir", str(project / cache))
        with whole_folder(self.project / KEPT) as kept:
            for name in FILES:
                shutil.copyfile(record.folder / name, kept / name)
            (kept / BEGUN).write_text("\n".join(begun))

    def bring_data(self, stages: Sequence[str], say: Say) -> None:
        """Have what these stages read: from DVC's cache, else a remote, else made again.

        Raises OperationalError where it cannot be had, or is not what was recorded.
        """
        self.call("-m", "pipeline.fingerprint")
        made_by = {
            out: stage
            for name in stages
            for out, stage in dvc_stages.inputs(self.project, name).items()
            if stage not in stages
        }
        recorded = dvc_stages.sums(self.project / KEPT)
        for out in made_by:
            if not re.fullmatch(r"[0-9a-f]{32}(\.dir)?", str(recorded.get(out))):
                raise UserError(f"{LOCK} of the run has no sum of {out}: choose another run")
        named = ", ".join(made_by)
        if self._has(made_by, lambda: self._ask(self.project, "checkout", *made_by)):
            say(f"{named}: from the cache of DVC")
        elif not self._ask(self.project, "remote", "list").strip():
            say(f"{named}: not in the cache of DVC, and there is no remote; made again")
            self.dvc("repro", *dict.fromkeys(made_by.values()))
        elif self._has(made_by, lambda: self.dvc("pull", *made_by)):  # it says why it cannot
            say(f"{named}: from the remote of DVC")
        else:
            say(f"{named}: not in the cache of DVC, and not to be had from its remote; made again")
            self.dvc("repro", *dict.fromkeys(made_by.values()))
        self._require_sums({out: recorded[out] for out in made_by})

    def _require_sums(self, recorded: dict[str, str]) -> None:
        """Raise OperationalError where the data that are here are not those recorded."""
        found = {out: dvc_stages.sum_of(self.project / out) for out in recorded}
        unlike = [out for out in recorded if found[out] != recorded[out]]
        if not unlike:
            return
        named = "; ".join(
            f"{out} has the sum {found[out]}, recorded is {recorded[out]}" for out in unlike
        )
        known = dvc_stages.sums(self.project)
        if any(known.get(out) != recorded[out] for out in unlike):
            raise OperationalError(
                f"the data that were made again are not those of the run, so nothing was trained: "
                f"{named}: bring those (dvc pull, or the downloads of that time) to {self.project}"
            )
        for out in unlike:  # DVC takes them for right, and would leave them
            remove(self.project / out)
        raise OperationalError(
            f"the cache of DVC is damaged, so nothing was trained: {named}: move the folder that "
            "`dvc cache dir` names away, and run this again: it pulls the data, or makes them again"
        )

    def _has(self, outs: Iterable[str], bring: Callable[[], object]) -> bool:
        """Whether all of them are there once DVC has been asked to bring them."""
        with contextlib.suppress(OperationalError):
            bring()
            return all((self.project / out).exists() for out in outs)
        return False

    def storage(self) -> str | None:
        """Where its runs are, if that outlives it: an absolute folder, or an address."""
        values = yaml_text.read_yaml(read_bytes(self.project / PARAMS).decode())
        storage = str(values["cluster"]["storage"])
        return storage if is_address(storage) or Path(storage).is_absolute() else None

    def has_result(self, one: StoredRecord) -> bool:
        """Whether its stage has come to a result, also if it failed after that."""
        return (self.project / one.result).exists()

    def record_again(self, one: StoredRecord, folder: Path) -> StoredRecord:
        """What the worktree's own store has in the place of one; folder: for its files."""
        content = read_json(self.project / one.result)
        if one.stage == "sweep":
            content = content["trials"][0]
        run_id = content["mlflow_run_id"]
        if run_id is None:
            raise OperationalError(f"{one.stage} has recorded no run: run this again")
        return StoredRecord.fetch(StoreReader(f"sqlite:///{self.project / STORE}"), run_id, folder)

    # --- programs ---------------------------------------------------------------------------------

    def dvc(self, *arguments: str) -> None:
        """Run DVC, whose output goes where errors go."""
        self.call("-m", "dvc", *arguments)

    def call(self, *arguments: str) -> None:
        """Run this Python with the worktree's own code; OperationalError where that fails.

        An interruption is passed on, and its end waited for; one that does not end is killed, which
        is said.
        """
        patience = self._patience()
        command = [sys.executable, *arguments]
        process = subprocess.Popen(
            command, cwd=self.project, env=self._environment(), stdout=2, start_new_session=True
        )
        try:
            status = process.wait()
        except BaseException:
            try:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGINT)
                    process.wait(patience)
            except subprocess.TimeoutExpired:
                line = f"killed, as it has not ended {patience:.0f} s after the interruption"
                print(line, file=sys.stderr, flush=True)
            finally:  # another interruption may end the wait; nobody else would end the stage
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            raise
        if status != 0:
            raise OperationalError(
                f"{' '.join(arguments[1:])} failed in {self.project} with status {status}, as is "
                "said above; run this again to resume"
            )

    def _patience(self) -> float:
        """Seconds for an interrupted stage to end: its workers are asked for as long as they may
        then take to save."""
        store = RemoteRunStore if is_address(self.storage() or "") else RunStore
        return 2 * store.save_seconds + PATIENCE_SECONDS

    def _ask(self, folder: Path, *arguments: str) -> str:
        """What a short command of DVC prints; OperationalError where it fails."""
        command = [sys.executable, "-m", "dvc", *arguments]
        done = subprocess.run(
            command, cwd=folder, env=self._environment(), capture_output=True, text=True
        )
        if done.returncode != 0:
            raise OperationalError(f"dvc {arguments[0]}: {dvc_stages.why_failed(done)}")
        return done.stdout

    def _environment(self) -> dict[str, str]:
        """The usual one, but that `python` and `seq2sweep` are this Python and the worktree's code,
        and that nothing is recorded elsewhere."""
        usual = {k: v for k, v in os.environ.items() if not k.startswith(("MLFLOW_", "GIT_"))}
        folder = Path(sys.executable).parent
        return usual | {
            "PATH": f"{folder}{os.pathsep}{usual.get('PATH', os.defpath)}",
            "PYTHONPATH": str((self.project / "src").resolve()),
        }
