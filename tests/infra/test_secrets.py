"""No secret stands in any file: infra/make-secrets makes them, in files that git does not know."""

from __future__ import annotations

import os
import re
import stat
import subprocess
from pathlib import Path

import pytest

from tests.infra.files import INFRA, ROOT, compose, own_files, pods

SECRET = re.compile(
    r"""(?ix)
    [\w-]* (?: password | passwd | secret | token | api_?key | access_?key | credential )s? [\w-]*
    ["']? \s* [:=] \s*          # ... is set to
    (?P<value> \S.* )
    """
)
LONG_RANDOM = re.compile(r"\b(?=\w*\d)(?=\w*[a-zA-Z])[A-Za-z0-9+/]{32,}\b|BEGIN [A-Z ]*PRIVATE KEY")
# Where a secret is kept, or that one is meant; no secret itself.
REFERENCE = re.compile(
    r"""(?x) ^ (?:
        (?: &\w+ \s* )? [{\[|>] .* | [*]\w+         # a mapping, a list, text that follows
      | ["']? /run/secrets .*  | ["']? \$ .*        # a file, a variable
      | ["']? infra/secrets .* | secrets/ .*  | [|] .*
      | seq2sweep(?:-ray)? [,}\s]* .*               # the name of a Kubernetes Secret
      | mode=0 \b .*                              # the rights of an empty folder
      | token \b .* | required .* | false | true
    ) $"""
)


def secrets_in(text: str) -> list[str]:
    """The lines that set something called a password, token or key to a literal."""
    found = []
    for line in text.splitlines():
        code = line.split("#")[0].strip().removeprefix("- ")
        match = SECRET.search(code)
        if match and not REFERENCE.match(match["value"].strip()) or LONG_RANDOM.search(code):
            found.append(line.strip())
    return found


@pytest.mark.parametrize("path", own_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_file_holds_a_secret(path: Path) -> None:
    assert secrets_in(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "line",
    [
        "POSTGRES_PASSWORD: hunter2",
        "  - MLFLOW_AUTH_ADMIN_PASSWORD=password1234",
        'RAY_AUTH_TOKEN="abc"',
        "{name: RAY_AUTH_TOKEN, value: abc}",
        "aws_secret_access_key = wJalrXUtnFEMI",
        "x: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b",
        "-----BEGIN RSA PRIVATE KEY-----",
    ],
)
def test_a_planted_secret_is_found(line: str) -> None:
    text = re.sub(r"\{name: (\w+), value: (\w+)\}", r"\1: \2", line)
    assert secrets_in(text) == [text.strip()]


def test_containers_get_secrets_by_reference() -> None:
    """Also where the name and the value of a variable stand in keys of their own."""
    for pod in pods():
        for container in pod.spec["containers"]:
            for variable in container.get("env", []):
                if re.search("PASSWORD|TOKEN|SECRET|KEY", variable["name"]):
                    by_file = str(variable.get("value", "")).startswith("/run/secrets/")
                    assert by_file or "secretKeyRef" in variable["valueFrom"], variable


def test_compose_takes_secrets_from_files() -> None:
    used = {name for each in compose()["services"].values() for name in each.get("secrets", [])}
    assert used == set(compose()["secrets"])
    for name, secret in compose()["secrets"].items():
        assert secret == {"file": f"secrets/{name}"}


def test_secrets_are_made_once_and_git_knows_none(tmp_path: Path) -> None:
    script = tmp_path / "infra/make-secrets"
    script.parent.mkdir()
    script.write_bytes((INFRA / "make-secrets").read_bytes())
    subprocess.run(["bash", script], check=True, capture_output=True)
    folder = tmp_path / "infra/secrets"
    made = {path.name: path.read_text() for path in folder.iterdir()}
    assert set(made) == set(compose()["secrets"])
    assert all(len(text) >= 64 for text in made.values())
    assert len(set(made.values())) == len(made)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700

    again = subprocess.run(["bash", script], check=True, capture_output=True, text=True)
    assert again.stdout == ""
    assert {path.name: path.read_text() for path in folder.iterdir()} == made

    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert {"/infra/secrets/", "/infra/.env", "/.slurm/"} <= set(ignored)
    # Nor does the image: what is not named is left out of it.
    kept = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert "*" in kept
    assert not [line for line in kept if line.startswith("!") and "secret" in line]
    assert "!infra" not in kept


def test_two_clones_and_two_users_share_no_containers_and_volumes(tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    stand_in = programs / "id"
    environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"}

    def settings(clone: str, name: str) -> dict[str, str]:
        """name: of the user 7; '' where the system knows none."""
        stand_in.write_text(f'#!/bin/sh\n[ "$1" != -un ] || exec printf %s "{name}"\necho 7\n')
        if not name:
            stand_in.write_text('#!/bin/sh\n[ "$1" != -un ] || exit 1\necho 7\n')
        stand_in.chmod(0o755)
        script = tmp_path / clone / "infra/make-secrets"
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_bytes((INFRA / "make-secrets").read_bytes())
        subprocess.run(["bash", script], check=True, capture_output=True, env=environment)
        return dict(line.split("=") for line in (script.parent / ".env").read_text().splitlines())

    ours = settings("a", "Jo.O@EXAMPLE")
    project = ours["COMPOSE_PROJECT_NAME"]
    assert re.fullmatch(r"seq2sweep-jooexample-\d+", project)
    assert ours == {"USER_ID": "7", "GROUP_ID": "7", "COMPOSE_PROJECT_NAME": project}
    assert settings("a", "another") == ours  # what is there stays
    assert settings("b", "Jo.O@EXAMPLE")["COMPOSE_PROJECT_NAME"] != project
    for name, said in (("another", "another"), ("", "7")):
        (tmp_path / "a/infra/.env").unlink()
        expected = project.replace("jooexample", said)
        assert settings("a", name)["COMPOSE_PROJECT_NAME"] == expected
