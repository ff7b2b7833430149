"""What goes to a cluster with a job, and what is refused before anything is sent."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from seq2sweep.errors import UserError
from seq2sweep.jobs import bundle
from seq2sweep.redaction import SECRET_CONTENT

ROOT = Path(__file__).parents[2]


def git(folder: Path, *arguments: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True)


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "repository"
    (folder / "src").mkdir(parents=True)
    git(folder.parent, "init", "-q", "--template=", str(folder))
    (folder / ".gitignore").write_text("/data/\n*.log\n")
    (folder / "src" / "tracked.py").write_text("a = 1\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    (folder / "untracked.py").write_text("b = 2\n")
    (folder / "data").mkdir()
    (folder / "data" / "big").write_bytes(b"x" * 1000)
    (folder / "a.log").write_text("c\n")
    return folder


@pytest.fixture
def repository(made_once: Path, tmp_path: Path) -> Path:
    """A repository with a tracked, an untracked and an ignored file."""
    return Path(shutil.copytree(made_once, tmp_path / "repository"))


def test_git_says_what_is_uploaded(repository: Path) -> None:
    found = bundle.collect(repository)
    assert list(found.files) == [".gitignore", "src/tracked.py", "untracked.py"]
    assert found.files["untracked.py"] == b"b = 2\n"
    assert found.bytes == sum((repository / path).stat().st_size for path in found.files)


def test_what_ray_is_to_ignore_is_not_uploaded(repository: Path) -> None:
    (repository / ".rayignore").write_text("/src/\nun*\n")
    assert list(bundle.collect(repository).files) == [".gitignore", ".rayignore"]


def test_patterns_of_a_project_in_a_larger_repository_begin_in_its_folder(
    repository: Path,
) -> None:
    project = repository / "thesis"
    for name in ("docs/page.md", "notes/private.md", "src/docs/code.py", "later/docs/page.md"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("x\n")
    git(repository, "add", "thesis/docs", "thesis/src")
    (project / ".rayignore").write_text("/docs/\n/notes/\n")
    assert list(bundle.collect(project).files) == [
        ".rayignore", "later/docs/page.md", "src/docs/code.py",
    ]  # fmt: skip


def test_a_deleted_file_is_not_missed(repository: Path) -> None:
    (repository / "src" / "tracked.py").unlink()
    assert list(bundle.collect(repository).files) == [".gitignore", "untracked.py"]


def test_links_lead_nowhere_outside(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    for name, target in {"out": tmp_path / "secret", "folder": repository / "src"}.items():
        (repository / name).symlink_to(target)
    (repository / "inside").symlink_to("untracked.py")
    (repository / "round").symlink_to("round")
    found = bundle.collect(repository)
    assert found.left_out == {
        "folder": "a link to a folder, or to nothing",
        "out": "a link out of the project",
        "round": "a link to a folder, or to nothing",
    }
    assert found.files["inside"] == b"b = 2\n"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_what_this_command_writes_is_not_uploaded(repository: Path, stream: str) -> None:
    """As under nohup: the second upload would be another job than the first."""
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from seq2sweep.jobs import bundle\n"
        "found = bundle.collect(Path.cwd())\n"
        "assert list(found.files) == ['.gitignore', 'src/tracked.py', 'untracked.py']\n"
        "assert found.left_out == {'nohup.out': 'this command writes to it'}\n"
    )
    with (repository / "nohup.out").open("a") as output:
        command = [sys.executable, "-c", program]
        streams = {"stdout": subprocess.DEVNULL, stream: output}
        done = subprocess.run(command, cwd=repository, **streams)
    assert done.returncode == 0, (repository / "nohup.out").read_text()


def test_a_name_that_is_no_text_is_left_out(repository: Path) -> None:
    (Path(os.fsdecode(os.fsencode(repository) + b"/caf\xe9.txt"))).write_text("x")
    (repository / "café.txt").write_text("y")
    found = bundle.collect(repository)
    assert list(found.files) == [".gitignore", "café.txt", "src/tracked.py", "untracked.py"]
    assert found.left_out == {"caf\\udce9.txt": "a name that is no UTF-8"}
    assert found.fingerprint()


def test_the_sum_is_of_the_content_alone(repository: Path) -> None:
    before = bundle.collect(repository).fingerprint()
    os.utime(repository / "untracked.py", (1, 1))
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "second")
    # These count by their values, elsewhere.
    (repository / "params.yaml").write_text("a: 1\n")
    (repository / "dvc.lock").write_text("schema: '2.0'\n")
    assert bundle.collect(repository).fingerprint() == before
    (repository / "untracked.py").write_text("b = 3\n")
    changed = bundle.collect(repository).fingerprint()
    (repository / "untracked.py").rename(repository / "renamed.py")
    assert len({before, changed, bundle.collect(repository).fingerprint()}) == 3


def test_the_commit_says_whether_code_differs_from_it(repository: Path) -> None:
    # The one says what data there are, the other's values are recorded: the code is the commit's.
    (repository / "dvc.lock").write_text("schema: '2.0'\n")
    (repository / "params.yaml").write_text("a: 1\n")
    assert not bundle.commit(repository).endswith("-dirty")
    for changed in ("src/tracked.py", "src/new.py"):
        (repository / changed).write_text("a = 2\n")
        assert bundle.commit(repository).endswith("-dirty")
        git(repository, "add", "-A")
        git(repository, "commit", "-qm", "next")
    head = subprocess.check_output(["git", "-C", str(repository), "rev-parse", "HEAD"], text=True)
    assert bundle.commit(repository) == head.strip()


def test_without_git_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"git decides what is uploaded.*git init"):
        bundle.collect(tmp_path)


def test_what_else_git_says_is_to_be_mended(repository: Path) -> None:
    (repository / ".git/index").write_bytes(b"damaged")
    with pytest.raises(UserError, match=r"git decides what is uploaded.*index.*`: mend that or"):
        bundle.collect(repository)


def test_where_git_is_not_installed_it_says_so(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(UserError, match=r"^git, which lists .*, is not installed: install it$"):
        bundle.collect(repository)
    assert bundle.commit(repository) == "unknown"


def test_a_repository_without_a_commit_will_do(tmp_path: Path) -> None:
    git(tmp_path.parent, "init", "-q", str(tmp_path))
    (tmp_path / "a").write_text("a")
    assert list(bundle.collect(tmp_path).files) == ["a"]
    assert bundle.commit(tmp_path) == "unknown"


def test_too_much_is_refused_with_the_largest_files(repository: Path) -> None:
    with (repository / "corpus.txt").open("wb") as stream:
        stream.truncate(bundle.LARGEST)
    with pytest.raises(UserError, match=r"20\.0 MiB .* largest are corpus\.txt \(20\.0 MiB\)"):
        bundle.collect(repository)
    (repository / ".rayignore").write_text("corpus.txt\n")
    assert "corpus.txt" not in bundle.collect(repository).files


@pytest.mark.parametrize(
    "name",
    [".env", ".env.local", "a/server.pem", "id_rsa", "gcp-credentials.json", ".netrc", "tls.KEY"],
)
def test_a_secret_is_known_by_its_name(repository: Path, name: str) -> None:
    (repository / name).parent.mkdir(exist_ok=True)
    (repository / name).write_text("harmless\n")
    with pytest.raises(UserError, match=rf"{name} \(by its name\): name it in \.gitignore"):
        bundle.collect(repository)
    (repository / name).unlink()
    (repository / f"{name}.example").write_text("harmless\n")
    bundle.collect(repository)


# In pieces, so that this file is not found itself.
SECRETS = {
    "an AWS key": "AKIA" + "ABCDEFGHIJ234567",
    "an AWS secret": "aws_secret_" + "access_key = '" + "aB3/" * 10 + "'",
    "a private key": "-----BEGIN OPENSSH " + "PRIVATE KEY-----",
    "a GitHub token": "ghp_" + "a1B2" * 9,
    "a GitLab token": "glpat-" + "abcde" * 4,
    "a Slack token": "xoxb-" + "1234567890-ab",
    "a Google key": "AIza" + "abcdefg" * 5,
    "a Hugging Face token": "hf_" + "abcdef" * 5,
    "an API key": "sk-" + "abcdefgh" * 4,
}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@pytest.mark.parametrize("what", SECRETS)
def test_a_secret_is_known_by_its_content(repository: Path, what: str, encoding: str) -> None:
    (repository / "notes.txt").write_text(f"first\nkey: {SECRETS[what]}\n", encoding=encoding)
    with pytest.raises(UserError) as caught:
        bundle.collect(repository)
    assert f"notes.txt ({what} in line 2)" in str(caught.value)
    assert SECRETS[what] not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "what"),
    [
        ("https://" + "ghtoken@host/x", "a user or password"),
        ("postgresql://" + "me:pa/ss@db/runs", "a user or password"),
        ("s3://bucket/x?" + "X-Amz-Signature=abc", r"a secret in its query \(X-Amz-Signature\)"),
        ("https://host/?" + "sig=abc", r"a secret in its query \(sig\)"),
    ],
)
def test_an_address_with_a_secret_is_refused_in_any_file(
    repository: Path, address: str, what: str
) -> None:
    (repository / ".dvc").mkdir()
    (repository / ".dvc/config").write_text(f"[core]\n    url = {address}\n")
    with pytest.raises(UserError, match=rf"\.dvc/config \(an address with {what} in line 2\)"):
        bundle.collect(repository)


@pytest.mark.parametrize("key", ["password", "secret_access_key", "sas_token"])
def test_the_key_of_a_dvc_remote_is_refused(repository: Path, key: str) -> None:
    (repository / ".dvc").mkdir()
    config = repository / ".dvc/config"
    config.write_text(f"['remote \"data\"']\n    ask_password = true\n    {key} = hunter2\n")
    with pytest.raises(UserError, match=rf"\.dvc/config \(the {key} of a DVC remote in line 3\)"):
        bundle.collect(repository)
    config.write_text("['remote \"data\"']\n    url = s3://bucket/data\n    ask_password = true\n")
    (repository / "settings.py").write_text(f"{key} = ask()\n")
    assert {".dvc/config", "settings.py"} <= bundle.collect(repository).files.keys()


def test_an_address_without_one_is_not(repository: Path) -> None:
    harmless = [
        "git+https://host/project@v1", "ssh://git@host/x", "postgresql://mlflow@$HOST/runs",
        "https://{user}:{password}@host", "https://$TOKEN@host", "postgresql://me:***@host",
        "postgresql://user:password@host", "http://host/?page=2", "http://host/?token={token}",
        "models:/m@champion", "for(;;key=next())", '"http://host/?key=" + key',
    ]  # fmt: skip
    (repository / "notes.txt").write_text("\n".join(harmless))
    assert "notes.txt" in bundle.collect(repository).files


def test_every_pattern_has_an_example() -> None:
    assert SECRETS.keys() == SECRET_CONTENT.keys()


def test_an_archive_depends_on_its_content_alone(tmp_path: Path) -> None:
    bundle.write_zip(tmp_path / "a.zip", {"b": b"2", "a/c": b"1"})
    bundle.write_zip(tmp_path / "b.zip", {"a/c": b"1", "b": b"2"})
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert archive.namelist() == ["a/c", "b"]
        assert archive.read("a/c") == b"1"


def test_this_repository_can_be_uploaded() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("this is a copy without git")
    found = bundle.collect(ROOT)
    assert {"dvc.yaml", "params.yaml", "pipeline/train.py", "src/seq2sweep/cli.py"} <= {
        *found.files
    }
    assert not [path for path in found.files if path.startswith(("tests/", "docs/", "data/"))]
