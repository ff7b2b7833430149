"""Every file of infra/ can be read by what it is for."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import yaml
from dvc import dirs

from seq2sweep.hardware import peak_flops
from seq2sweep.planning.prices import KEYS
from tests.infra.files import (
    INFRA,
    ROOT,
    compose,
    dockerfile,
    documents,
    image_environment,
    own_files,
    scripts,
    writable,
    yaml_files,
)


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", yaml_files(), ids=name)
def test_yaml_can_be_read(path: Path) -> None:
    assert documents(path)


def test_all_was_found() -> None:
    found = {name(path) for path in own_files()}
    assert {
        "infra/docker/Dockerfile", "infra/compose.yaml", "infra/ray/aws.yaml",
        "infra/ray/local.yaml", "infra/kubernetes/kustomization.yaml", "infra/prices.yaml",
        "infra/slurm/repro.sbatch", "infra/make-secrets", "infra/in-project",
    } <= found  # fmt: skip


@pytest.mark.parametrize("path", scripts(), ids=name)
def test_scripts_stop_at_the_first_error(path: Path) -> None:
    assert subprocess.run(["bash", "-n", path]).returncode == 0
    text = path.read_text(encoding="utf-8")
    assert "\nset -euo pipefail\n" in text
    if path.suffix != ".sbatch":
        assert os.access(path, os.X_OK), "not executable"


@pytest.mark.parametrize("path", scripts(), ids=name)
def test_shellcheck_finds_nothing(path: Path) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    done = subprocess.run(["shellcheck", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_hadolint_finds_nothing() -> None:
    beside = Path(sys.executable).parent
    hadolint = shutil.which("hadolint", path=f"{beside}:{os.environ['PATH']}")
    if hadolint is None:
        pytest.skip("hadolint is not installed")
    done = subprocess.run([hadolint, INFRA / "docker/Dockerfile"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_image_is_not_roots_and_has_its_programs() -> None:
    text = (INFRA / "docker/Dockerfile").read_text(encoding="utf-8")
    last = text.split("\nFROM ")[-1]
    assert [line for line in last.splitlines() if line.startswith("USER ")] == ["USER 1000:1000"]
    assert 'ENTRYPOINT ["with-secrets"]' in last
    assert "--no-install-recommends" in last
    for program in ("docker/with-secrets", "docker/ray-healthy", "docker/tracking-server"):
        assert f"infra/{program}" in last
        assert (INFRA / program).is_file()
    # COPY takes all that .dockerignore lets through, which is named file by file.
    kept = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for path in [line[1:] for line in kept if line.startswith("!")]:
        assert (ROOT / path).exists(), path


def test_triton_can_compile_and_run_what_starts_its_kernels() -> None:
    """By a C compiler; and Docker lets nothing run from a tmpfs unless it is told `exec`."""
    last = dockerfile().rpartition("\nFROM ")[2]
    (installed,) = re.findall(r'"\$DEVICE" = cuda \]; then \\\n(.+); \\\n +fi', last)
    assert installed.split()[-2:] == ["gcc", "libc6-dev"]
    assert "\nARG DEVICE=" in last
    folder = Path(image_environment()["TRITON_CACHE_DIR"])
    for name in ("head", "worker"):
        tmpfs = [each.split(":") for each in compose()["services"][name]["tmpfs"]]
        (options,) = [options for path, options in tmpfs if Path(path) in folder.parents]
        assert "exec" in options.split(","), name


@pytest.mark.parametrize("container", writable())
def test_programs_keep_files_where_their_container_may_write(
    container: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = image_environment()
    assert {"PATH", "HOME", "SEQ2SWEEP_COMMIT"} <= set(environment)
    monkeypatch.delenv("DVC_SITE_CACHE_DIR", raising=False)
    for name, value in environment.items():
        if name.startswith("DVC_"):
            monkeypatch.setenv(name, value)
    # Ray and Python's temporary files, what is kept for a user, and DVC's sums of files.
    for folder in ("/tmp", environment["HOME"], dirs.site_cache_dir()):
        places = {str(path) for path in (Path(folder), *Path(folder).parents)}
        assert places & writable()[container], folder


def test_a_project_in_the_shared_folder_has_new_code_and_old_results(tmp_path: Path) -> None:
    source, shared, programs = (tmp_path / name for name in ("source", "shared", "programs"))
    old = {"src/gone.py": "old", "data/kept": "data", "params.yaml": "old", "dvc.yaml": "old"}
    new = {"src/new.py": "new", "pipeline/train.py": "new", "params.yaml": "image", "dvc.yaml": "n"}
    for folder, files in ((source, new), (shared, old)):
        for file, text in files.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(text)
    (shared / "dvc.yaml").chmod(0o444)
    (shared / ".dvc/tmp").mkdir(parents=True)
    (shared / ".dvc/tmp/rwlock").write_text("")  # a command was killed as it wrote it
    (tmp_path / "params.yaml").write_text("mine")
    programs.mkdir()
    (programs / "dvc").write_text('#!/bin/sh\necho "dvc $*"\n')
    (programs / "dvc").chmod(0o755)
    done = subprocess.run(
        [INFRA / "in-project", shared, "sh", "-c", "pwd; echo $PYTHONPATH"],
        env={
            "PATH": f"{programs}:{os.environ['PATH']}",
            "SOURCE": str(source),
            "PARAMS": str(tmp_path / "params.yaml"),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == f"in-project: params.yaml is {tmp_path / 'params.yaml'}\n"
    without_git = "dvc config --local core.no_scm true"
    assert done.stdout.splitlines() == [without_git, str(shared), str(shared / "src")]
    found = {
        path.relative_to(shared).as_posix(): path.read_text()
        for path in shared.rglob("*")
        if path.is_file()
    }
    assert found == new | {"params.yaml": "mine", "data/kept": "data", ".in-project.lock": ""}


@pytest.fixture
def projects(tmp_path: Path) -> tuple[Path, Path]:
    """The project of an image, and the one in a folder that all share."""
    if shutil.which("flock") is None:
        pytest.skip("flock is not installed")
    for name in ("source", "shared"):
        (tmp_path / name / ".git").mkdir(parents=True)
        (tmp_path / name / "params.yaml").write_text("")
    return tmp_path / "source", tmp_path / "shared"


def test_a_command_that_works_in_the_shared_folder_is_not_disturbed(
    projects: tuple[Path, Path],
) -> None:
    source, shared = projects
    for folder, text in ((source, "new"), (shared, "of the first")):
        (folder / "params.yaml").write_text(text)
    command = [INFRA / "in-project", shared, "true"]
    environment = os.environ | {"SOURCE": str(source), "IN_PROJECT_SECONDS": "0"}
    with (shared / ".in-project.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (75, "")
    assert done.stderr.splitlines() == [
        f"in-project: waiting for the command that works in {shared}",
        f"in-project: another command works in {shared}: wait for its end",
    ]
    assert (shared / "params.yaml").read_text() == "of the first"
    subprocess.run(command, env=environment, check=True, capture_output=True)
    assert (shared / "params.yaml").read_text() == "new"


# As dvc, which a signal ends at once, and a stage, which does not have dvc's open files.
DVC = """
import signal, subprocess, sys
interrupted = signal.getsignal(signal.SIGINT) is signal.default_int_handler
print(interrupted, sys.stdin.read(), flush=True)
subprocess.run(["sh", "-c", sys.argv[1]], stdin=subprocess.DEVNULL)
sys.exit(3)
"""
STAGE = """
trap 'echo saves' TERM HUP
echo $$
until [ -e done ]; do sleep 0.05; done
echo ended
"""


@pytest.mark.parametrize(
    ("number", "to_all", "status"),
    [
        (signal.SIGTERM, True, 128 + signal.SIGTERM),  # Ray's `job stop`
        (signal.SIGTERM, False, 128 + signal.SIGTERM),
        (signal.SIGHUP, True, 128 + signal.SIGHUP),  # a closed terminal
        (signal.SIGKILL, None, 128 + signal.SIGKILL),  # dvc alone, as where memory is short
        (None, None, 3),
    ],
)
def test_the_folder_is_held_until_a_stage_has_saved(
    projects: tuple[Path, Path],
    number: signal.Signals | None,
    to_all: bool | None,
    status: int,
) -> None:
    source, shared = projects
    environment = os.environ | {"SOURCE": str(source), "IN_PROJECT_SECONDS": "0"}
    with subprocess.Popen(
        [INFRA / "in-project", shared, sys.executable, "-c", DVC, STAGE],
        # Where the tests run under nohup, it would be ignored.
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as first:
        assert first.stdin is not None
        assert first.stdout is not None
        try:
            first.stdin.write("given")
            first.stdin.close()
            # Ctrl-C ends it, and it can ask.
            assert first.stdout.readline() == "True given\n"
            stage = int(first.stdout.readline())
            dvc = psutil.Process(stage).parent()
            assert dvc is not None
            # Which Ray kills as a whole where what runs the job has gone.
            assert os.getpgid(stage) == first.pid
            if number is not None:
                if to_all is None:
                    dvc.send_signal(number)
                elif to_all:
                    os.killpg(first.pid, number)
                else:
                    first.send_signal(number)
                dvc.wait(60)
                again = [INFRA / "in-project", shared, "true"]
                assert subprocess.run(again, env=environment, timeout=60).returncode == 75
            (shared / "done").write_text("")
            assert first.wait(60) == status
        finally:
            (shared / "done").write_text("")
        assert first.stdout.read().splitlines() == ["saves"] * bool(to_all) + ["ended"]
    subprocess.run([INFRA / "in-project", shared, "true"], env=environment, check=True)


def test_the_folder_is_not_held_by_who_calls(projects: tuple[Path, Path]) -> None:
    """Who has the mark of another call, as a shell that such a call has left."""
    source, shared = projects
    environment = os.environ | {"SOURCE": str(source), "IN_PROJECT": str(shared)}
    done = subprocess.run([INFRA / "in-project", shared, "true"], env=environment, timeout=60)
    assert done.returncode == 0


def test_a_signal_ends_the_wait_for_what_goes_on(projects: tuple[Path, Path]) -> None:
    """As for a server that was started to stay."""
    source, shared = projects
    command = [INFRA / "in-project", shared, "sh", "-c", "sleep 300 >/dev/null 2>&1 & exit 3"]
    environment = os.environ | {"SOURCE": str(source)}
    with subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as first:
        assert first.stderr is not None
        try:
            said = "in-project: waiting until all that it has started has ended; a signal ends that"
            assert said in [first.stderr.readline().strip() for _ in range(2)]
            first.terminate()
            assert first.wait(60) == 3
        finally:
            os.killpg(first.pid, signal.SIGKILL)


# --- Ray's cluster launcher ----------------------------------------------------------------------

LAUNCHER = [INFRA / "ray/aws.yaml", INFRA / "ray/local.yaml"]


@pytest.mark.parametrize("path", LAUNCHER, ids=name)
def test_the_launcher_takes_its_files(path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    autoscaler = pytest.importorskip("ray.autoscaler")
    schema = json.loads((Path(autoscaler.__file__).parent / "ray-schema.json").read_text())
    (content,) = documents(path)
    jsonschema.validate(content, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(content | {"min_wokers": 1}, schema)


@pytest.mark.parametrize("path", LAUNCHER, ids=name)
def test_ray_wants_a_token_and_its_dashboard_stays_on_loopback(path: Path) -> None:
    (content,) = documents(path)
    starts = [
        command
        for key in ("head_start_ray_commands", "worker_start_ray_commands")
        for command in content[key]
        if "ray start" in command
    ]
    assert len(starts) == 2
    assert all("RAY_AUTH_MODE=token" in command for command in starts)
    assert "--dashboard-host=127.0.0.1" in starts[0]
    # Time to save for a training whose job is stopped.
    assert "RAY_JOB_STOP_WAIT_TIME_S=60" in starts[0]
    mounts = content["file_mounts"]
    assert [to for to, source in mounts.items() if source == "infra/secrets/ray_token"]
    for source in mounts.values():
        assert source.startswith("infra/secrets/") or (ROOT / source).exists(), source


def test_a_job_on_machines_of_your_own_finds_the_projects_python(tmp_path: Path) -> None:
    (content,) = documents(INFRA / "ray/local.yaml")
    programs = tmp_path / ".venv/bin"
    programs.mkdir(parents=True)
    for program in ("python", "ray"):
        (programs / program).write_text("#!/bin/sh\ncommand -v python\n")
        (programs / program).chmod(0o755)
    for key in ("head_start_ray_commands", "worker_start_ray_commands"):
        start = content[key][-1].replace("/shared/seq2sweep", str(tmp_path))
        done = subprocess.run(["bash", "-c", start], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == str(programs / "python"), key


def test_on_machines_of_your_own_no_other_user_can_replace_the_code_of_workers(
    tmp_path: Path,
) -> None:
    (content,) = documents(INFRA / "ray/local.yaml")
    shared = "/tmp/ray-$USER"
    assert f" --temp-dir={shared}/r " in content["head_start_ray_commands"][-1]
    for key in ("head_start_ray_commands", "worker_start_ray_commands"):
        own = tmp_path / key
        (own / "r").mkdir(parents=True)  # of a start before
        own.chmod(0o777)
        subprocess.run(["bash", "-c", content[key][-2].replace(shared, str(own))], check=True)
        assert stat.S_IMODE(own.stat().st_mode) == 0o700, key
        assert [*own.iterdir()] == [], key


def test_machines_of_a_cloud_get_of_the_project_what_the_image_has() -> None:
    """Without .dvcignore a stage runs again for what Python has compiled."""
    mounts = set(documents(INFRA / "ray/aws.yaml")[0]["file_mounts"].values())
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    image = {line[1:] for line in lines if line.startswith("!")}
    assert image - mounts == {"README.md", "infra/docker"}


def test_the_head_stays_and_workers_are_on_spot_machines() -> None:
    (content,) = documents(INFRA / "ray/aws.yaml")
    types = content["available_node_types"]
    assert "InstanceMarketOptions" not in types[content["head_node_type"]]["node_config"]
    workers = {key: each for key, each in types.items() if key != content["head_node_type"]}
    assert workers
    for each in workers.values():
        assert each["node_config"]["InstanceMarketOptions"]["MarketType"] == "spot"
        assert each["max_workers"] <= content["max_workers"]
    for each in types.values():
        machine = each["node_config"]
        # Ray's own security group would let everyone in by SSH.
        assert machine["SecurityGroupIds"] == ["sg-REPLACE"]
        assert machine["MetadataOptions"]["HttpTokens"] == "required"
        assert all(disk["Ebs"]["Encrypted"] for disk in machine["BlockDeviceMappings"])


@pytest.mark.parametrize(("locked", "status"), [(0, 0), (2, 0), (99, 1)])
def test_packages_of_a_machine_wait_for_its_own_updates(
    tmp_path: Path, locked: int, status: int
) -> None:
    """apt-get is locked so many times, as in the first minutes of a machine."""
    command = documents(INFRA / "ray/aws.yaml")[0]["initialization_commands"][0]
    calls = tmp_path / "calls"
    for program, does in {
        "sudo": f'echo "$@" >> {calls}; test "$(grep -c update {calls})" -gt {locked} || exit 100',
        "sleep": "",
    }.items():
        (tmp_path / program).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / program).chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(["bash", "-c", command], env={"PATH": path})
    assert done.returncode == status
    *updates, last = calls.read_text().splitlines()
    assert len(updates) == min(locked + 1, 29)
    packages = "git nfs-common python3-venv" if status == 0 else "apt-get update -qq"
    assert last.endswith(packages)


# --- prices --------------------------------------------------------------------------------------


def test_prices_are_numbers_with_their_source() -> None:
    text = (INFRA / "prices.yaml").read_text(encoding="utf-8")
    prices = yaml.safe_load(text)
    assert prices["currency"] == "USD"
    assert len(prices["devices"]) > 3
    for device, figures in prices["devices"].items():
        assert set(figures) <= KEYS, device
        assert figures, device
        assert all(isinstance(value, int | float) and value > 0 for value in figures.values())
        assert peak_flops(device, "float32"), f"{device} is no name that a driver gives"
    figures = re.findall(r"^    (\w+): \S+(?:  # (.+))?$", text, re.MULTILINE)
    assert len(figures) == sum(map(len, prices["devices"].values()))
    for kind, source in figures:
        assert source
        assert kind != "per_hour" or re.search(r"; 20\d\d-\d\d-\d\d$", source), source
