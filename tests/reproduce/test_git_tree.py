"""A patch holds all that makes a run's code another than its commit, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from seq2sweep import git_command
from seq2sweep.errors import UserError
from seq2sweep.reproduce import git_tree
from tests.reproduce.repository import git


def tree_of(folder: Path) -> dict[str, bytes]:
    """The files that determine a result, but for params.yaml."""
    paths = [
        p
        for top in ("src", "pipeline", "dvc.yaml")
        for p in [folder / top, *(folder / top).rglob("*")]
    ]
    return {str(p.relative_to(folder)): p.read_bytes() for p in paths if p.is_file()}


def test_a_clean_tree_has_no_changes(project: Path) -> None:
    (project / "docs/page.md").write_text("another page\n")
    (project / "params.yaml").write_text("tracking: {uri: 'http://me:hunter2@host'}\n")
    assert git_tree.changes(project) == b""
    assert git_tree.files_of(project, b"") == []


def test_what_git_holds_of_a_folder(project: Path, tmp_path: Path) -> None:
    (project / "corpora").mkdir()
    (project / "corpora/mine.en").write_text("mine\n")
    (project / "corpora/.gitignore").write_text("*\n!.gitignore\n")
    git(project, "add", "corpora/.gitignore")
    git(project, "commit", "-qm", "a folder without text")
    assert git_tree.holds(project, "HEAD", "src")
    assert not git_tree.holds(project, "HEAD", "corpora")
    git(project, "add", "-f", "corpora/mine.en")
    assert not git_tree.holds(project, "HEAD", "corpora")
    git(project, "commit", "-qm", "with text")
    git(project, "rm", "-q", "--cached", "corpora/mine.en")
    assert git_tree.holds(project, "HEAD", "corpora")
    assert git_tree.holds(project, "a" * 40, "corpora"), "which is fetched later"
    (tmp_path / "no repository").mkdir()
    assert git_tree.holds(tmp_path / "no repository", "HEAD", "corpora")


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"diff.noprefix": "true", "color.ui": "always"},
        {"diff.relative": "true", "apply.whitespace": "error"},
    ],
)
def test_a_worktree_with_the_changes_is_the_tree(
    project: Path, tmp_path: Path, settings: dict[str, str]
) -> None:
    for key, value in settings.items():
        git(project, "config", key, value)
    commit = git(project, "rev-parse", "HEAD")
    (project / "src/code.py").write_text("one = 2\n")
    git(project, "add", "src/code.py")  # staged, and changed again
    (project / "src/code.py").write_text("one = 3 \n")
    (project / "src/gone.py").unlink()
    (project / "src/latin.txt").write_bytes("sch\xf6n\n".encode("latin-1"))
    (project / "src/new").mkdir()
    (project / "src/new/ärger [1].py").write_text("new = True\n")
    (project / "src/data.bin").write_bytes(bytes(range(256)))
    (project / "src/my.secret").write_text("ignored")
    (project / "docs/new.md").write_text("no code\n")
    before = git(project, "status", "--porcelain")
    patch = git_tree.changes(project)
    assert git(project, "status", "--porcelain") == before
    expected = tree_of(project)
    del expected["src/my.secret"]
    names = git_tree.files_of(project, patch)
    assert names == sorted(
        ["src/code.py", "src/gone.py", "src/latin.txt", "src/new/ärger [1].py", "src/data.bin"]
    )
    made = git_tree.add_worktree(project, tmp_path / "again", commit, None)
    git_command.git(made, "apply", "--whitespace=nowarn", "-", given=patch)
    assert tree_of(made) == expected
    assert not (made / "docs/new.md").exists()


def test_a_change_in_the_second_of_the_commit_is_seen(project: Path) -> None:
    """Of as many bytes: git looks into a file that is not older than its index."""
    code, then = project / "src/code.py", (1_700_000_000, 1_700_000_000)
    git(project, "config", "core.trustctime", "false")  # a test cannot set that time
    os.utime(code, then)
    git(project, "update-index", "--refresh")
    os.utime(project / ".git/index", then)
    code.write_text("one = 2\n")
    os.utime(code, then)
    assert b"+one = 2" in git_tree.changes(project)


def test_a_project_below_its_repository_is_found_in_the_worktree(
    project: Path, tmp_path: Path
) -> None:
    inner = project / "deep" / "project"
    (inner / "src").mkdir(parents=True)
    (inner / "src" / "inner.py").write_text("")
    git(project, "add", "-A")
    git(project, "commit", "-qm", "more")
    (inner / "src" / "inner.py").write_text("changed = True\n")
    (project / "src" / "code.py").write_text("of another project\n")
    git(project, "config", "diff.relative", "true")
    patch = git_tree.changes(inner)
    assert b"b/deep/project/src/inner.py" in patch
    assert b"code.py" not in patch
    made = git_tree.add_worktree(inner, tmp_path / "again", git(project, "rev-parse", "HEAD"), None)
    assert made == tmp_path / "again" / "deep" / "project"
    assert (made / "src" / "inner.py").exists()


@pytest.mark.parametrize(
    ("origin", "said"),
    [
        ("https://host/x", "git fetch 'my fork', then"),
        ("https://***@host/y", "git fetch origin, then"),
        # A stranger may have written it, who wants it to be called.
        ("https://evil/x", "git fetch REMOTE, then"),
        ("--upload-pack=touch pwned", "git fetch REMOTE, then"),
        (None, "git fetch REMOTE, then"),
    ],
)
def test_a_commit_that_is_not_here_says_which_remote_of_ones_own_may_have_it(
    project: Path, tmp_path: Path, origin: str | None, said: str
) -> None:
    git(project, "remote", "add", "origin", "https://me:hunter2@host/y")
    git(project, "config", "remote.my fork.url", "https://host/x")
    with pytest.raises(UserError, match=rf"commit 0{{40}} is not in this repository: {said}"):
        git_tree.add_worktree(project, tmp_path / "again", "0" * 40, origin)
    assert not (tmp_path / "again").exists()


def test_a_commit_that_was_fetched_by_its_address_is_strange(project: Path, tmp_path: Path) -> None:
    fork = tmp_path / "fork"
    git(tmp_path, "clone", "-q", str(project), str(fork))
    git(fork, "commit", "-q", "--allow-empty", "-m", "theirs")
    theirs, ours = git(fork, "rev-parse", "HEAD"), git(project, "rev-parse", "HEAD")
    assert not git_tree.is_strange(project, theirs), "that it is not here is said elsewhere"
    git(project, "fetch", "-q", str(fork), "HEAD")
    assert git_tree.is_strange(project, theirs)
    assert not git_tree.is_strange(project, ours)
    git(project, "checkout", "-q", "--orphan", "unrelated")
    assert git_tree.is_strange(project, theirs), "HEAD has no commit"
    git(project, "commit", "-qm", "unrelated")
    assert git_tree.is_strange(project, theirs)
    for keep, forget in (
        (["checkout", "-q", "--detach", theirs], ["checkout", "-q", "--detach", ours]),
        (["branch", "taken", theirs], ["branch", "-qD", "taken"]),
        (["tag", "-am", "one", "v1", theirs], ["tag", "-d", "v1"]),
        (["remote", "add", "-f", "fork", str(fork)], ["remote", "remove", "fork"]),
    ):
        git(project, *keep)
        assert not git_tree.is_strange(project, theirs)
        git(project, *forget)
        assert git_tree.is_strange(project, theirs)


def test_a_commit_that_a_shallow_clone_lacks_wants_its_history(
    project: Path, tmp_path: Path
) -> None:
    (project / ".git" / "shallow").write_text(git(project, "rev-parse", "HEAD") + "\n")
    with pytest.raises(UserError, match="git fetch --unshallow REMOTE, then run this again"):
        git_tree.add_worktree(project, tmp_path / "again", "0" * 40, None)


def test_a_folder_without_git_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(git_command.GitError, match="not a git repository"):
        git_tree.changes(tmp_path)
    with pytest.raises(UserError, match="no git repository"):
        git_tree.add_worktree(tmp_path, tmp_path / "again", "0" * 40, None)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("warning: a\nfatal: dubious owner\nTo trust it, call:\n\tgit", "fatal: dubious owner"),
        ("error: patch failed: a:1\nerror: a: does not apply", "error: patch failed: a:1"),
        ("Schwerwiegend: kein Repository", "Schwerwiegend: kein Repository"),
        ("", "git diff failed"),
    ],
)
def test_the_reason_is_the_line_that_has_it(
    said: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "git"
    program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{said}\nEND\nexit 128\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(git_command.GitError) as failed:
        git_command.git(tmp_path, "diff")
    assert str(failed.value) == reason


def test_git_in_a_hook_looks_into_this_repository(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path))
    monkeypatch.setenv("GIT_INDEX_FILE", os.devnull)
    assert git_tree.changes(project) == b""
