"""What the doctor says of machines that are well, and of those that are not."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from seq2sweep import cli, console, health
from seq2sweep import config as configuration
from seq2sweep.cluster import doctor, ray_internals
from seq2sweep.cluster.doctor import examine
from seq2sweep.config import Config
from seq2sweep.health import Finding
from seq2sweep.jobs import bundle, submit
from seq2sweep.model import flops
from seq2sweep.storage.object_store import ObjectStore
from seq2sweep.tracking import mlflow_store

MACHINE = doctor._Machine("n1", "id-1", 0.0)


def by_name(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.what: finding for finding in findings}


def facts(**changes: Any) -> dict[str, Any]:
    healthy = {
        "versions": doctor.versions(),
        "dashboard": None,
        "gpus": [],
        "driver": None,
        "driver_fault": None,
        "cuda": None,
        "storage": None,
        "free": 10**12,
        "free_temporary": 10**12,
    }
    return healthy | changes


def of_machine(config: Config, machine: doctor._Machine = MACHINE, **changes: Any) -> Any:
    return by_name(list(doctor._of_machine(machine, facts(**changes), config)))


def test_a_machine_that_is_well(cluster: None, tiny_config: Config, project: Path) -> None:
    findings = examine(tiny_config, project)
    found = by_name(findings)
    assert set(found) == {
        "workers",
        "trials",
        "versions",
        "ray[default]",
        "GPUs",
        "storage's disk",
        "temporary files",
        "storage",
        "clock",
    }
    assert [f for f in findings if f.level == "problem"] == []
    assert found["workers"].text.startswith("1 node of 2 CPUs, 0 GPUs: room for")
    assert found["trials"].text == "1 node of 2 CPUs, 0 GPUs: room for a trial of the sweep"
    assert found["clock"].level == "well"
    assert list((project / "runs").iterdir()) == []


def test_a_trial_that_fits_nowhere(cluster: None, tiny_config: Config) -> None:
    large = configuration.with_changes(tiny_config, {"sweep.cpus_per_trial": 3})
    (found,) = doctor._trials(large)
    assert (found.level, found.text) == ("problem", "1 node of 2 CPUs, 0 GPUs")
    assert "3 CPUs (sweep.cpus_per_trial)" in found.remedy
    assert list(doctor._trials(configuration.with_changes(large, {"sweep.method": "none"}))) == []


def test_a_storage_that_cannot_be_written(
    cluster: None, tiny_config: Config, project: Path
) -> None:
    (project / "runs").write_text("a file where the folder should be")
    found = by_name(examine(tiny_config, project))
    assert found["storage"].level == "problem"
    assert "cluster.storage" in found["storage"].remedy
    # What forbids the folder, and not that there is none.
    assert "Not a directory" in found["storage"].text


def test_a_bucket(cluster: None, bucket: str, tiny_config: Config, project: Path) -> None:
    config = configuration.with_changes(tiny_config, {"cluster.storage": f"{bucket}/"})
    found = by_name(examine(config, project))
    assert found["storage"].level == "well"
    assert found["storage"].text == f"{bucket}: written, locked, and what others wrote is read"
    assert found["storage's disk"].level == "well"
    assert ObjectStore(bucket).sizes() == {}
    nowhere = configuration.with_changes(tiny_config, {"cluster.storage": "s3://there-is-none/x"})
    found = by_name(examine(nowhere, project))
    assert found["storage"].level == "problem"
    assert found["storage"].text.startswith("cluster.storage: there is no bucket for s3://there-is")


def test_a_server_that_does_not_know_conditions(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ObjectStore, "create", lambda here, name, content: True)
    assert "(If-None-Match), so two trainings" in str(doctor.write(bucket, "n1"))


def test_a_node_that_does_not_answer(cluster: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise ModuleNotFoundError("No module named 'seq2sweep'")

    def sleeps() -> None:
        time.sleep(1.0)

    (machine,) = doctor._machines()
    with pytest.raises(doctor._NoAnswerError) as caught:
        doctor._answer(machine, doctor.on_node(machine.id, fails))
    assert caught.value.finding.text == "No module named 'seq2sweep'"
    monkeypatch.setattr(doctor, "PATIENCE", 0.1)
    with pytest.raises(doctor._NoAnswerError) as caught:
        doctor._answer(machine, doctor.on_node(machine.id, sleeps))
    assert caught.value.finding.text == "none in 0.1 s"
    gone = doctor._Machine("gone", "ab" * 28, 0.0)
    monkeypatch.setattr(doctor, "PATIENCE", 60.0)
    with pytest.raises(doctor._NoAnswerError):
        doctor._answer(gone, doctor.on_node(gone.id, doctor.clock))


def test_silent_nodes_are_waited_for_together(
    tiny_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines = [doctor._Machine(f"n{i}", f"id-{i}", 0.0) for i in range(3)]
    now = [1000.0]

    def get(reference: object, timeout: float) -> None:
        now[0] += timeout
        raise ray.exceptions.GetTimeoutError

    monkeypatch.setattr(doctor, "on_node", lambda *about: None)
    monkeypatch.setattr(doctor.ray, "get", get)
    monkeypatch.setattr(doctor.time, "monotonic", lambda: now[0])
    findings = list(doctor._of_all(machines, "nowhere", tiny_config))
    assert [(f.where, f.text) for f in findings] == [(f"n{i}", "none in 60 s") for i in range(3)]
    assert now[0] == 1060.0


# --- before a job -------------------------------------------------------------------------------


@pytest.fixture
def of_jobs(tiny_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """Of a project, in whose folder this is, that submits its stages to a server that is away."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # whoever runs this may have a token
    config = configuration.with_changes(tiny_config, {"cluster.job_server": "http://127.0.0.1:1"})
    Path("params.yaml").write_text(configuration.dump(config), encoding="utf-8")
    return config


def test_a_package_that_is_too_large_and_a_server_that_is_away(
    of_jobs: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    subprocess.run(["git", "init", "-q", "."], check=True)
    server = configuration.with_changes(of_jobs, {"tracking.uri": "http://host:5000"})
    small = by_name(submit.examine(server, "http://127.0.0.1:1", tmp_path))
    assert small["records of a job"].level == "well"
    assert small["package"].level == "well"
    assert small["package"].text.startswith("1 files, ")
    with Path("big.bin").open("wb") as stream:
        stream.truncate(bundle.LARGEST)
    assert cli.main(["doctor", "--json"]) == 1
    told = capsys.readouterr()
    found = by_name([Finding(**entry) for entry in json.loads(told.out)])
    assert found["package"].level == "problem"
    assert "big.bin (20.0 MiB)" in found["package"].text
    assert "name it in .gitignore" in found["package"].remedy
    assert found["records of a job"].level == "problem"
    assert "would be lost when it ends; set tracking.uri" in found["records of a job"].remedy
    assert found["job server"].level == "problem"
    assert "no job server of Ray answers" in found["job server"].text
    assert "RAY_API_SERVER_ADDRESS=http://127.0.0.1:1 ray job submit --working-dir" in told.err
    # Nodes need no project of their own: the uploaded one is imported.
    (line,) = [line for line in told.err.splitlines() if "ray job submit" in line]
    words = shlex.split(line)
    settings = json.loads(words[words.index("--runtime-env-json") + 1])
    assert settings == {"env_vars": {"PYTHONPATH": submit.VARIABLES["PYTHONPATH"]}}
    assert words[-4:] == ["python", "-m", "seq2sweep.cli", "doctor"]


def test_without_git_the_package_says_what_to_install(
    of_jobs: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    found = by_name(submit.examine(of_jobs, "http://127.0.0.1:1", tmp_path))["package"]
    assert found.text == "git, which lists the files to upload, is not installed"
    assert found.remedy == "install it"


def test_an_error_without_a_remedy_is_told_whole() -> None:
    assert Finding.of_error("here", "disk", "it is full") == Finding(
        "here", "disk", "problem", "it is full", "it is full"
    )


# --- from what a machine told --------------------------------------------------------------------


def test_other_versions_are_named(tiny_config: Config) -> None:
    here = doctor.versions()
    found = of_machine(tiny_config, versions=here | {"torch": "1.0", "seq2sweep": "abc"})
    assert found["versions"].level == "problem"
    assert found["versions"].text == (
        f"torch 1.0 (here {here['torch']}), seq2sweep abc (here {here['seq2sweep']})"
    )


def test_builds_of_one_version_are_the_same(
    tiny_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A head without a GPU may have torch for CPUs alone; constraints.txt names no build."""
    found = []
    for build in ("2.13.0+cpu", "2.13.0", "2.13.1"):
        monkeypatch.setattr(doctor, "version", lambda package, build=build: build)
        found.append(doctor.versions())
    monkeypatch.setattr(doctor, "versions", lambda: found[0])
    assert of_machine(tiny_config, versions=found[1])["versions"].level == "well"
    assert of_machine(tiny_config, versions=found[2])["versions"].level == "problem"


def test_the_sum_of_the_code_changes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "__init__.py").write_text("")
    (tmp_path / "a.py").write_text("x = 1\n")
    monkeypatch.setattr("seq2sweep.__file__", str(tmp_path / "__init__.py"))
    before = doctor.versions()["seq2sweep"]
    assert doctor.versions()["seq2sweep"] == before
    (tmp_path / "a.py").write_text("x = 2\n")
    after = doctor.versions()["seq2sweep"]
    assert after != before
    # A file that is being edited has an editor's link beside it, which leads nowhere.
    (tmp_path / ".#a.py").symlink_to("someone@somewhere.1")
    assert doctor.versions()["seq2sweep"] == after


def test_a_ray_without_its_job_server(tiny_config: Config) -> None:
    found = of_machine(tiny_config, dashboard="No module named 'aiohttp'")["ray[default]"]
    assert (found.level, found.text) == ("problem", "No module named 'aiohttp'")


@pytest.mark.parametrize(
    ("counted", "seen", "driver", "level", "text"),
    [
        (0.0, [], None, "well", "none"),
        (2.0, ["H100", "H100"], "570.1", "well", "2 x H100; driver 570.1, torch for CUDA 12.8"),
        (2.0, ["H100"], "570.1", "problem", "Ray counts 2, torch sees 1 x H100; driver 570.1, "),
        (0.0, [], "570.1", "warning", "none; driver 570.1"),
    ],
)
def test_gpus(
    tiny_config: Config, counted: float, seen: list[str], driver: str | None, level: str, text: str
) -> None:
    machine = doctor._Machine("n1", "id-1", counted)
    found = of_machine(tiny_config, machine, gpus=seen, driver=driver, cuda="12.8")["GPUs"]
    assert found.level == level
    assert found.text.startswith(text)


def test_a_dead_driver(
    tiny_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a machine is after an update of its kernel: the program is there, and fails."""
    program = tmp_path / "nvidia-smi"
    said = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
    program.write_text(f'#!/bin/sh\necho "{said}"\nexit 9\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(doctor, "PCI_DEVICES", tmp_path / "devices")
    for number, vendor in enumerate(("0x1d0f", "0x10de")):
        (tmp_path / f"devices/0000:00:0{number}.0").mkdir(parents=True)
        (tmp_path / f"devices/0000:00:0{number}.0/vendor").write_text(f"{vendor}\n")
    assert doctor._driver() == (None, f"nvidia-smi: {said}")
    found = of_machine(tiny_config, driver_fault=doctor._driver()[1])["GPUs"]
    assert (found.level, found.text) == ("problem", f"nvidia-smi: {said}")
    # A head without a GPU, of an image with the driver: nothing there is to be mended.
    (tmp_path / "devices/0000:00:01.0/vendor").write_text("0x1013\n")
    assert doctor._driver() == (None, None)
    (tmp_path / "devices/0000:00:01.0/vendor").write_text("0x10de\n")
    program.write_text("#!/bin/sh\necho 570.1\necho 570.1\n")
    assert doctor._driver() == ("570.1", None)
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(doctor, "DRIVER_SECONDS", 0.2)
    assert "timed out" in str(doctor._driver()[1])
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    assert doctor._driver() == (None, None)


def test_a_disk_too_small_for_the_checkpoints(tiny_config: Config) -> None:
    """The newest three, the best two, eight of each 100 steps before, and two in between."""
    kept = {"keep_checkpoints": 3, "keep_best": 2, "keep_every": 100, "checkpoint_every": 20}
    settings = kept | {"steps": 860, "validate_every": 20}
    big = configuration.with_changes(
        tiny_config, {f"train.{key}": value for key, value in settings.items()}
    )
    needed = 12 * (3 + 2 + 8 + 2) * flops.parameter_count(big.model, big.vocabulary.size)
    assert of_machine(big, free=needed + 1)["storage's disk"].level == "well"
    assert of_machine(big, free=needed)["storage's disk"].level == "problem"
    full = of_machine(big, free_temporary=10**9)["temporary files"]
    assert full.level == "warning"
    assert "start a cluster's head with --temp-dir" in full.remedy, "TMPDIR is not asked there"


def test_the_disk_of_rays_own_folder_is_measured(
    cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which is another than $TMPDIR where that has a long path."""
    free = {str(tmp_path): 5, ray_internals.session_folder(): 7}
    monkeypatch.setattr(
        shutil, "disk_usage", lambda folder: SimpleNamespace(free=free[str(folder)])
    )
    found = doctor.facts(str(tmp_path), "n1")
    assert (found["free"], found["free_temporary"]) == (5, 7)


# --- between machines ----------------------------------------------------------------------------


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], None]:
    """Lets every question have the answer that a function gives."""

    def use(answer: Callable[[], Any]) -> None:
        monkeypatch.setattr(doctor, "on_node", lambda *about: None)
        monkeypatch.setattr(doctor, "_answer", lambda *about: answer())

    return use


def test_a_storage_that_is_not_shared(
    answers: Callable[[Callable[[], Any]], None], tmp_path: Path
) -> None:
    other = doctor._Machine("n2", "id-2", 0.0)
    told = {MACHINE: facts(), other: facts()}
    answers(lambda: ["id-1"])
    found = doctor._storage(MACHINE, told, f"{tmp_path}/meeting")
    assert found.level == "problem"
    assert found.text == f"does not see what the driver and n2 wrote in {tmp_path}"
    answers(lambda: ["id-1", "id-2", "driver"])
    assert doctor._storage(MACHINE, told, f"{tmp_path}/meeting").level == "well"
    # Who could not write is named for that, not by all others.
    answers(lambda: ["id-1", "driver"])
    told[other] = facts(storage="Permission denied")
    assert doctor._storage(MACHINE, told, f"{tmp_path}/meeting").level == "well"
    assert doctor._storage(other, told, f"{tmp_path}/meeting").text == "Permission denied"


@pytest.mark.parametrize(("ahead", "level"), [(0.0, "well"), (10.0, "warning"), (-10.0, "warning")])
def test_a_clock_that_is_wrong(
    answers: Callable[[Callable[[], Any]], None], ahead: float, level: str
) -> None:
    answers(lambda: time.time() + ahead)
    found = doctor._clock(MACHINE)
    assert found.level == level
    assert found.text.startswith(f"{ahead:+.1f}" if ahead else "")


# --- MLflow and the command ----------------------------------------------------------------------


def test_mlflow(tiny_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    fresh = mlflow_store.examine(tiny_config, tmp_path)
    assert fresh.level == "well"
    assert list(tmp_path.iterdir()) == []
    away = configuration.with_changes(tiny_config, {"tracking.uri": "http://127.0.0.1:9"})
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    found = mlflow_store.examine(away, tmp_path)
    assert found.level == "problem"
    assert "http://127.0.0.1:9 cannot be used" in found.text
    assert "start it" in found.remedy
    (tmp_path / "mlflow.db").write_text("no database")
    assert mlflow_store.examine(tiny_config, tmp_path).level == "problem"


@pytest.mark.parametrize(
    ("uri", "retries", "said"),
    [
        (
            "postgresql://mlflow:hunter2",
            "0",
            "the address of the server or the database cannot be read",
        ),
        ("sqlite:///mlflow.db", "no", "MLFLOW_HTTP_REQUEST_MAX_RETRIES must be a number"),
    ],
)
def test_a_store_whose_settings_cannot_be_read_is_a_finding(
    tiny_config: Config,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    uri: str,
    retries: str,
    said: str,
) -> None:
    """Among the others, which are shown as well."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", retries)
    config = configuration.with_changes(tiny_config, {"tracking.uri": uri})
    found = mlflow_store.examine(config, tmp_path)
    assert found.level == "problem"
    assert said in f"{found.text}: {found.remedy}"
    assert "hunter2" not in str(found)


def test_the_command(
    cluster: None,
    tiny_config: Config,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(project)
    Path("params.yaml").write_text(configuration.dump(tiny_config), encoding="utf-8")
    assert cli.main(["doctor", "--json"]) == 0
    findings = [Finding(**entry) for entry in json.loads(capsys.readouterr().out)]
    assert by_name(findings)["store"].where == "MLflow"
    wide = configuration.with_changes(tiny_config, {"cluster.workers": 7})
    Path("params.yaml").write_text(configuration.dump(wide), encoding="utf-8")
    assert cli.main(["doctor"]) == 1
    told = capsys.readouterr()
    assert told.out.splitlines()[-1].startswith("  the cluster, workers: cluster.workers is 7")
    assert told.err.splitlines()[-1] == "seq2sweep doctor: 1 problem(s) found"


def test_the_command_is_not_silent_for_long(
    of_jobs: Config, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def slow(*about: object) -> list[Finding]:
        time.sleep(0.2)
        return []

    monkeypatch.setattr(console, "SILENT_SECONDS", 0.05)
    monkeypatch.setattr(submit, "examine", slow)
    assert cli.main(["doctor", "--json"]) == 0
    told = capsys.readouterr()
    assert [entry["where"] for entry in json.loads(told.out)] == ["MLflow"]
    assert told.err.startswith("checking, ")


def test_the_overview_ends_with_what_is_to_be_mended() -> None:
    findings = [
        Finding("n1", "clock", "well", "+0.0 s"),
        Finding("MLflow", "store", "problem", "away", "start it"),
        Finding("n1", "GPUs", "warning", "none", "install one"),
    ]
    assert health.overview(findings).splitlines() == [
        "n1",
        "  well     clock  +0.0 s",
        "  warning  GPUs   none",
        "MLflow",
        "  problem  store  away",
        "",
        "To fix:",
        "  MLflow, store: start it",
        "  n1, GPUs: install one",
    ]
    assert "To fix" not in health.overview(findings[:1])
