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


@pytest.mark.parametrize("settings", [{}, {"diff.noprefix": "true", "color.ui": "always"}])
def test_a_worktree_with_the_changes_is_the_tree(
    project: Path, tmp_path: Path, settings: dict[str, str]
) -> None:
    for key, value in settings.items():
        git(project, "config", key, value)
    commit = git(project, "rev-parse", "HEAD")
    (project / "src/code.py").write_text("one = 2\n")
    git(project, "add", "src/code.py")  # staged, and changed again
    (project / "src/code.py").write_text("one = 3\n")
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
    git_command.git(made, "apply", "-", given=patch)
    assert tree_of(made) == expected
    assert not (made / "docs/new.md").exists()


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
    patch = git_tree.changes(inner)
    assert b"inner.py" in patch
    assert b"code.py" not in patch
    made = git_tree.add_worktree(inner, tmp_path / "again", git(project, "rev-parse", "HEAD"), None)
    assert made == tmp_path / "again" / "deep" / "project"
    assert (made / "src" / "inner.py").exists()


def test_a_commit_that_is_not_here_says_where_to_fetch_it(project: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"commit 0{40} is not in .*: git fetch https://host/x,"):
        git_tree.add_worktree(project, tmp_path / "again", "0" * 40, "https://host/x")
    with pytest.raises(UserError, match="git fetch REMOTE"):
        git_tree.add_worktree(project, tmp_path / "again", "0" * 40, None)
    assert not (tmp_path / "again").exists()


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
