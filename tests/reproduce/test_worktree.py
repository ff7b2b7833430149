"""A worktree has the run's code, parameters and data, or there is one line of what is missing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from seq2sweep import yaml_text
from seq2sweep.cluster import signals
from seq2sweep.cluster.signals import signals_as_interrupts
from seq2sweep.errors import OperationalError, UserError
from seq2sweep.reproduce import git_tree
from seq2sweep.reproduce.stored_record import StoredRecord
from seq2sweep.reproduce.worktree import Worktree
from tests.reproduce.repository import git

STAGES = """
stages:
  encode:
    cmd: x
    outs: [data/encoded, data/vocabulary]
  train:
    cmd: x
    params: [{code.json: [train]}]
    deps: [data/encoded/train.json]
    outs: [models/train]
  evaluate:
    cmd: x
    deps: [data/encoded/test.json, data/vocabulary, models/train]
    outs: [metrics/evaluate.json]
"""
LOCK = """
schema: '2.0'
stages:
  encode:
    cmd: x
    outs:
    - {path: data/encoded, hash: md5, md5: dacf538efadfa6f41618ec4aa3659c9d.dir}
    - {path: data/vocabulary, hash: md5, md5: dacf538efadfa6f41618ec4aa3659c9d.dir}
"""
PARAMS = "cluster: {storage: runs}\n"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What DVC is asked for; it knows a cache, and no remote."""
    found: list[tuple[str, ...]] = []

    def ask(self: Worktree, folder: Path, *arguments: str) -> str:
        found.append(arguments)
        return {"cache": "/a/cache\n"}.get(arguments[0], "")

    monkeypatch.setattr(Worktree, "_ask", ask)
    return found


@pytest.fixture
def record(project: Path, tmp_path: Path) -> StoredRecord:
    folder = tmp_path / "record"
    folder.mkdir()
    (project / "dvc.yaml").write_text(STAGES)
    git(project, "commit", "-qam", "stages")
    content = {"commit": git(project, "rev-parse", "HEAD"), "origin": None, "stage": "train"}
    texts = {"dvc.lock": LOCK, "params.yaml": "", "constraints.txt": "", "changes.patch": ""}
    for name, text in {**texts, "record.json": json.dumps(content)}.items():
        (folder / name).write_text(text)
    return StoredRecord("0" * 32, content, folder)


def make(
    project: Path,
    record: StoredRecord,
    key: str = "key",
    said: Any = None,
    params: str = "of: the run\n",
) -> Worktree:
    say = [].append if said is None else said.append
    begun = (key, "of what is compared")
    return Worktree.make(project, project.parent / "an again", record, params, begun, say)


def with_changes(project: Path, record: StoredRecord) -> None:
    """Has the record's patch hold what differs from the commit, which is undone."""
    (record.folder / "changes.patch").write_bytes(git_tree.changes(project))
    git(project, "stash", "--include-untracked")


def test_other_worktrees_whose_disk_is_away_stay(
    project: Path, record: StoredRecord, asked: Any
) -> None:
    other, away = project.parent / "other", project.parent / "away"
    git(project, "worktree", "add", "-q", "--detach", str(other))
    other.rename(away)
    make(project, record)
    away.rename(other)
    git(other, "status")


def test_it_has_the_changes_and_the_parameters_of_the_run(
    project: Path, record: StoredRecord, asked: Any
) -> None:
    (project / "src/code.py").write_text("one = 2\n")
    (project / "src/new.py").write_text("new\n")
    with_changes(project, record)
    (project / "params.yaml").write_text("of: today\n")
    said: list[str] = []
    made = make(project, record, said=said)
    assert (made.project / "src/code.py").read_text() == "one = 2\n"
    assert (made.project / "src/new.py").read_text() == "new\n"
    assert (made.project / "params.yaml").read_text() == "of: the run\n"
    assert (made.project / "dvc.lock").read_text() == LOCK
    size = (record.folder / "changes.patch").stat().st_size
    shown = "src/code.py, src/new.py"
    assert said == [f"applies changes.patch of the run ({size} bytes) to {shown}"]
    assert ("config", "--local", "cache.dir", "/a/cache") in asked
    # Nothing of it is in the tree where it is made.
    assert (project / "src/code.py").read_text() == "one = 1\n"
    assert git(project, "stash", "list")


def test_it_is_resumed_for_the_same_and_refused_for_another(
    project: Path, record: StoredRecord, asked: Any
) -> None:
    root = project.parent / "an again"
    assert Worktree.begun(project, root) is None
    of_once = {"address": None, "max_failures": 3, "hang_seconds": 9, "storage": "/runs/once"}
    of_today = {"address": "here:1", "max_failures": 5, "hang_seconds": 8, "storage": "/runs/now"}
    texts = [
        json.dumps({"cluster": cluster, "download": {"folder": name}, "train": {"seed": name}})
        for name, cluster in (("once", of_once), ("today", of_today))
    ]
    made = make(project, record, params=texts[0])
    (made.project / "runs" / "work").write_text("done")
    assert Worktree.begun(project, root) == ("key", "of what is compared")
    said: list[str] = []
    assert make(project, record, said=said, params=texts[1]) == made
    assert said == [f"resumes in {made.root}"]
    # The head may have another address by now; what decides a result stays, and so do its runs.
    assert yaml_text.read_yaml((made.project / "params.yaml").read_text()) == {
        "cluster": of_today | {"storage": "/runs/once"},
        "download": {"folder": "today"},
        "train": {"seed": "once"},
    }
    with pytest.raises(UserError, match=r"not of this run .*git worktree remove --force '.*again'"):
        make(project, record, key="another")
    assert (made.project / "runs" / "work").read_text() == "done"
    git(project, "worktree", "remove", "--force", str(made.root))
    root.mkdir()
    # It is no worktree any more, which git would refuse to remove.
    with pytest.raises(UserError, match="libraries: move it away, or name another --folder"):
        make(project, record)


NEW_FILE = (
    "diff --git a/{0} b/{0}\nnew file mode 100644\n--- /dev/null\n+++ b/{0}\n@@ -0,0 +1 @@\n+x\n"
)
MOVED_FILE = (
    "diff --git a/docs/page.md b/src/page.py\nsimilarity index 100%\n"
    "{0} docs/page.md\n{1} src/page.py\n"
)
"""Of the two files git names the new one, which is code."""
OTHER_TEXT = (
    "diff --git a/src/code.py b/src/code.py\n--- a/src/code.py\n+++ b/src/code.py\n"
    "@@ -1 +1 @@\n-two = 1\n+two = 2\n"
)


@pytest.mark.parametrize(
    ("patch", "said"),
    [
        *(
            (NEW_FILE.format(path), f" changes {path}, which is no code")
            for path in (".dvc/config", "docs/page.md", "params.yaml", "src2/x.py")
        ),
        (NEW_FILE.format("src/../outside.py"), ""),
        (NEW_FILE.format("src/.git/hooks/post-checkout"), ""),
        *(
            (MOVED_FILE.format(*words), " cannot be applied: it renames or copies files")
            for words in (
                ("rename from", "rename to"),
                ("copy from", "copy to"),
                ("rename old", "rename new"),
            )
        ),
        ("no patch at all\n", " cannot be applied: error"),
        (OTHER_TEXT, " cannot be applied: error"),
    ],
)
def test_a_patch_that_does_not_change_code_alone_leaves_no_worktree(
    project: Path, record: StoredRecord, asked: Any, patch: str, said: str
) -> None:
    (record.folder / "changes.patch").write_text(patch)
    with pytest.raises(UserError, match=rf"changes\.patch of the run{said}"):
        make(project, record)
    assert sorted(p.name for p in project.parent.iterdir()) == ["project", "record"]
    assert len(git(project, "worktree", "list").splitlines()) == 1


def test_one_whose_maker_was_killed_is_made_anew(
    project: Path, record: StoredRecord, asked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = project.parent / "an again"
    for remains in ("all", "no .git", "nothing"):
        git_tree.add_worktree(project, root, record.content["commit"], None)
        (root / "src/code.py").write_text("half")
        if remains == "no .git":
            (root / ".git").unlink()
        elif remains == "nothing":
            shutil.rmtree(root)
        made = make(project, record)
        assert (made.project / "src/code.py").read_text() == "one = 1\n"
        assert "locked" not in git(project, "worktree", "list", "--porcelain")
        assert Worktree.begun(project, root) is not None
        git(project, "worktree", "remove", "--force", str(root))


# --- data ----------------------------------------------------------------------------------------


class Data:
    """Stands in for DVC, which has the data in `place`; each is a folder with one file, of `text`.

    lock: what dvc.lock is after they were made again."""

    def __init__(self, place: str, lock: str = LOCK, text: str = "right") -> None:
        self.place, self.lock, self.text, self.repro = place, lock, text, ()

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def bring(tree: Worktree, how: str, outs: Any) -> None:
            if how != self.place:
                raise OperationalError("missing")
            self._make(tree, outs)

        def ask(tree: Worktree, folder: Path, *arguments: str) -> str:
            if arguments[0] == "checkout":
                bring(tree, *arguments[:1], arguments[1:])
            remotes = "mine\tx\n" * (self.place in ("pull", "away"))
            return {"cache": "/a/cache", "remote": remotes}.get(arguments[0], "")

        def dvc(tree: Worktree, *arguments: str) -> None:
            if arguments[0] == "pull":
                return bring(tree, *arguments[:1], arguments[1:])
            self.repro = arguments
            self._make(tree, ("data/encoded", "data/vocabulary"))
            (tree.project / "dvc.lock").write_text(self.lock)

        monkeypatch.setattr(Worktree, "_ask", ask)
        monkeypatch.setattr(Worktree, "dvc", dvc)
        monkeypatch.setattr(Worktree, "call", lambda tree, *arguments: None)

    def _make(self, tree: Worktree, outs: Any) -> None:
        for out in outs:
            (tree.project / out / "deep").mkdir(parents=True)
            (tree.project / out / "deep" / "file").write_text(self.text)


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("checkout", "from the cache of DVC"),
        ("pull", "from the remote of DVC"),
        ("repro", "not in the cache of DVC, and there is no remote; made again"),
        ("away", "not in the cache of DVC, and not to be had from its remote; made again"),
    ],
)
def test_data_come_from_the_nearest_place(
    project: Path, record: StoredRecord, monkeypatch: pytest.MonkeyPatch, place: str, said: str
) -> None:
    data = Data(place)
    data.install(monkeypatch)
    lines: list[str] = []
    made = make(project, record)
    made.bring_data(["train", "evaluate"], lines.append)
    # What the stages themselves make, models/train, is not brought.
    assert lines == [f"data/encoded, data/vocabulary: {said}"]
    assert data.repro == (("repro", "encode") if "made again" in said else ())


def test_data_made_again_that_differ_are_told_before_anything_is_trained(
    project: Path, record: StoredRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    Data("repro", LOCK.replace("dacf", "9999"), "other").install(monkeypatch)
    made = make(project, record)
    message = r"made again are not those .*data/encoded has the sum \w+\.dir, recorded is dacf"
    with pytest.raises(OperationalError, match=message):
        made.bring_data(["train"], lambda line: None)


@pytest.mark.parametrize("place", ["checkout", "pull"])
def test_data_that_changed_in_the_cache_are_told_before_anything_is_trained(
    project: Path, record: StoredRecord, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    Data(place, text="wrong").install(monkeypatch)  # dvc.lock is as recorded, as DVC reads no file
    made = make(project, record)
    message = r"cache of DVC is damaged.*data/encoded has the sum \w+\.dir, recorded is dacf"
    with pytest.raises(OperationalError, match=message):
        made.bring_data(["train", "evaluate"], lambda line: None)
    # What DVC would take for right is gone; the next call brings it.
    Data(place).install(monkeypatch)
    made.bring_data(["train", "evaluate"], lambda line: None)


@pytest.mark.parametrize("lock", ["", "schema: '2.0'\nstages: {}\n", LOCK.replace("dacf", "../3")])
def test_a_record_without_sums_of_the_data_is_one_line(
    project: Path, record: StoredRecord, monkeypatch: pytest.MonkeyPatch, lock: str
) -> None:
    (record.folder / "dvc.lock").write_text(lock)
    Data("checkout").install(monkeypatch)
    made = make(project, record)
    with pytest.raises(UserError, match=r"dvc\.lock (of the run has no sum of|is damaged)"):
        made.bring_data(["train"], lambda line: None)


# --- programs ------------------------------------------------------------------------------------


def test_a_stage_has_the_code_of_the_worktree_and_no_other_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://host")
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "where.py").write_text(
        "import os; uri = os.environ.get('MLFLOW_TRACKING_URI', 'none')\n"
        "open('out', 'w').write(uri + __file__)"
    )
    (tmp_path / "params.yaml").write_text(PARAMS)
    Worktree(tmp_path, tmp_path).call("-c", "import where")
    assert (tmp_path / "out").read_text() == f"none{tmp_path}/src/where.py"


def test_a_stage_that_fails_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text(PARAMS)
    with pytest.raises(OperationalError, match=r"failed in .* with status 3, .*again to resume"):
        Worktree(tmp_path, tmp_path).call("-c", "raise SystemExit(3)")


def interrupted(folder: Path, child: str, *when: str) -> None:
    """Call a stage, and be sent SIGTERM when it has made the first of these files, and the next."""

    def send() -> None:
        for name in when:
            end = time.monotonic() + 60
            while not (folder / name).exists():
                if time.monotonic() > end:
                    return
                time.sleep(0.05)
            os.kill(os.getpid(), signal.SIGTERM)

    (folder / "params.yaml").write_text(PARAMS)
    sender = threading.Thread(target=send)
    before = signal.signal(signal.SIGTERM, lambda *_: None)  # one too late ends no tests
    try:
        sender.start()
        with pytest.raises(KeyboardInterrupt), signals_as_interrupts():
            Worktree(folder, folder).call("-c", child)
    finally:
        sender.join()
        signal.signal(signal.SIGTERM, before)


def test_an_interruption_reaches_the_stage_and_is_waited_for(tmp_path: Path) -> None:
    child = (
        "import time, pathlib\ntry:\n  pathlib.Path('up').touch()\n  time.sleep(60)\n"
        "except KeyboardInterrupt:\n  time.sleep(0.2)\n  pathlib.Path('saved').touch()"
    )
    interrupted(tmp_path, child, "up")
    assert (tmp_path / "saved").exists()


@pytest.mark.parametrize("again", [False, True])
def test_a_stage_that_does_not_end_is_killed(
    tmp_path: Path,
    again: bool,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """When patience is at an end, or at another interruption."""
    child = (
        "import os, signal, time, pathlib\n"
        "signal.signal(signal.SIGINT, lambda *_: pathlib.Path('asked').touch())\n"
        "pathlib.Path('pid').write_text(str(os.getpid()))\npathlib.Path('up').touch()\n"
        "while True: time.sleep(1)"
    )
    if again:
        monkeypatch.setattr(signals, "CLEANUP_SECONDS", 0)
    else:
        monkeypatch.setattr(Worktree, "_patience", lambda tree: 0.5)
    interrupted(tmp_path, child, "up", *["asked"] * again)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    said = capfd.readouterr().err
    assert ("killed, as it has not ended 0 s after the interruption" in said) is not again


@pytest.mark.parametrize(
    ("storage", "seconds"), [("runs", 90), ("/mnt/shared", 90), ("s3://bucket/prefix", 600)]
)
def test_a_stage_has_as_long_to_end_as_it_may_take_to_ask_and_to_save(
    tmp_path: Path, storage: str, seconds: int
) -> None:
    (tmp_path / "params.yaml").write_text(f"cluster: {{storage: '{storage}'}}")
    assert Worktree(tmp_path, tmp_path)._patience() == 2 * seconds + 60
