"""The pages on clusters: what they name exists, and what must be said is."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from seq2sweep.reproduce.git_tree import CODE, PARAMS
from tests.infra.files import INFRA, ROOT, compose, yaml_files

PAGES = [ROOT / "docs/clusters.md", ROOT / "docs/security.md", *(ROOT / "docs/clusters").glob("*")]


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_and_files_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert link.startswith("http") or (page.parent / link).is_file(), link
    # Made on the way: secrets, settings, files of one's own.
    made = re.compile(r"infra/(secrets|\.env|ray/my\.local\.yaml)")
    for path in re.findall(r"(?<![\w/])infra/[\w./-]*\w", text):
        assert made.match(path) or (ROOT / path).exists(), path
    for test in re.findall(r"tests/[\w/]+\.py", text):
        assert (ROOT / test).is_file(), test


@pytest.mark.parametrize("page", sorted((ROOT / "docs/clusters").glob("*")), ids=name)
def test_a_page_says_first_what_it_costs_and_is_linked(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    first = next(line for line in text.splitlines()[1:] if line and not line.startswith(("#", "R")))
    assert first.startswith("**Cost:**") or page.name == "cloud.md"
    assert f"clusters/{page.name}" in (ROOT / "docs/clusters.md").read_text(encoding="utf-8")


def test_what_is_to_be_replaced_is_explained() -> None:
    page = (ROOT / "docs/clusters/cloud.md").read_text(encoding="utf-8")
    placeholders = {
        found
        for path in yaml_files()
        for found in re.findall(r"\w+-REPLACE", path.read_text(encoding="utf-8"))
    }
    assert placeholders == {"ami-REPLACE", "subnet-REPLACE", "sg-REPLACE", "fs-REPLACE"}
    for placeholder in placeholders:
        assert f"# {placeholder}: " in page


def test_every_published_port_is_on_the_security_page() -> None:
    page = (ROOT / "docs/security.md").read_text(encoding="utf-8")
    ports = {
        port.rpartition(":")[2]
        for service in compose()["services"].values()
        for port in service.get("ports", [])
    }
    assert ports == {"8265", "5000", "8333"}
    for port in ports | {"6379", "5432"}:
        assert re.search(rf"^\| [^|]*\b{port}\b", page, re.MULTILINE), port


def test_the_pages_give_the_names_that_the_files_have() -> None:
    kubernetes = (ROOT / "docs/clusters/kubernetes.md").read_text(encoding="utf-8")
    for secret in ("seq2sweep", "seq2sweep-ray"):
        assert f"create secret generic {secret} " in kubernetes
    manifests = "".join(
        path.read_text(encoding="utf-8") for path in (INFRA / "kubernetes").rglob("*.yaml")
    )
    used = set(re.findall(r"[{ ]key: ([a-z]+_[a-z]+)\b", manifests))
    assert len(used) == 4
    for key in used:
        assert re.search(rf"--from-file=(infra/secrets/)?{key}\b", kubernetes), key


@pytest.mark.parametrize("page", [ROOT / "docs/jobs.md", *PAGES], ids=name)
def test_whoever_is_told_to_use_a_token_is_told_where_it_lies(page: Path) -> None:
    """Without the file Ray's commands end in thirty lines."""
    text = page.read_text(encoding="utf-8")
    if page.name in ("cloud.md", "security.md"):  # the launcher puts it at Ray's own place
        return
    if "RAY_AUTH_MODE=token" in text:
        assert "RAY_AUTH_TOKEN_PATH" in text
    for block in re.findall(r"(?:^    .+\n)+", text, re.MULTILINE):
        if "RAY_AUTH_MODE=token" in block:
            assert "RAY_AUTH_TOKEN_PATH=" in block, block


def test_who_starts_ray_by_hand_keeps_other_users_out_of_its_folder() -> None:
    text = (ROOT / "docs/clusters.md").read_text(encoding="utf-8")
    (block,) = [b for b in re.findall(r"(?:^    .+\n)+", text, re.MULTILINE) if "--head" in b]
    (made,) = re.findall(r"^    mkdir -m 700 (\S+)$", block, re.MULTILINE)
    assert f" --temp-dir={made}/r " in block
    assert block.index("mkdir") < block.index("ray start")


def test_variables_that_a_user_may_set_are_on_the_page_that_they_are_for() -> None:
    def named(pattern: str, *files: Path) -> set[str]:
        text = "".join(file.read_text(encoding="utf-8") for file in files)
        return set(re.findall(pattern, text))

    read = {
        "clusters/slurm.md": named(r"\$\{((?!SLURM_)[A-Z_]+):-", INFRA / "slurm/repro.sbatch"),
        "jobs.md": named(r'environ\.get\("(RAY_\w+)"', *(ROOT / "src/seq2sweep/jobs").glob("*.py")),
    }
    for page, variables in read.items():
        assert variables
        for variable in variables:
            assert variable in (ROOT / "docs" / page).read_text(encoding="utf-8"), variable


@pytest.mark.parametrize("page", ["cloud.md", "kubernetes.md"])
def test_code_that_differs_from_the_commit_is_recorded_as_such(page: str, tmp_path: Path) -> None:
    """There is no git where it runs: a commit without an ending would be taken for all of it."""
    text = (ROOT / "docs/clusters" / page).read_text(encoding="utf-8")
    assert text.count("rev-parse HEAD") == 1
    (command,) = re.findall(r"^    (COMMIT=(?:.*\\\n)*.*)$", text, re.MULTILINE)

    def commit() -> str:
        script = f"{command}\necho $COMMIT"
        return subprocess.check_output(["bash", "-c", script], cwd=tmp_path, text=True).strip()

    def write(path: str, content: str) -> None:
        file = tmp_path / (path if "." in path else f"{path}/part.py")
        file.parent.mkdir(exist_ok=True)
        file.write_text(content)

    others = (PARAMS, "README.md")  # the values of params.yaml are recorded themselves
    for path in (*CODE, *others):
        write(path, "1\n")
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for arguments in (["init", "-q"], ["add", "-A"], [*who, "commit", "-qm", "first"]):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True)
    for path in others:
        write(path, "2\n")
    clean = commit()
    assert re.fullmatch("[0-9a-f]{40}", clean)
    for path in CODE:
        write(path, "2\n")
        assert commit() == f"{clean}-dirty", path
        write(path, "1\n")
        assert commit() == clean
    write("src/new.py", "1\n")
    assert commit() == f"{clean}-dirty"
