"""Command lines and stages in front of what is no file: one line, status 2, and soon."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from seq2sweep import config as configuration
from seq2sweep.cli import main
from tests import hostile
from tests.test_hostile_params import ROOT, SECONDS, time_limit

SMALL = {"data.phrasebook.train": 20, "data.phrasebook.valid": 5, "data.phrasebook.test": 5}
DOCUMENTED = (0, 1, 2)


def project(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    monkeypatch.chdir(folder)
    Path("infra").mkdir()
    Path("infra/prices.yaml").symlink_to(ROOT / "infra/prices.yaml")
    small = configuration.with_changes(hostile.SHIPPED, SMALL)
    Path("params.yaml").write_text(configuration.dump(small), encoding="utf-8")


def status_of(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> object:
    with time_limit(SECONDS):
        try:
            if arguments[0] == "seq2sweep":
                return main(arguments[1:])
            monkeypatch.setattr(sys, "argv", arguments[1:])
            runpy.run_module(arguments[2], run_name="__main__", alter_sys=False)
        except SystemExit as error:
            return error.code
    return "no status"


def check(
    first: int,
    last: int,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    refused = 0
    for number in range(first, last):
        project(folder / str(number), monkeypatch)
        arguments = hostile.command(number, hostile.odd_places(Path.cwd()))
        what = f"command {number}: {arguments}"
        if arguments[0] == "python":
            what += f", {hostile.disturb(number, Path.cwd())}"
        try:
            status = status_of(arguments, monkeypatch)
        except BaseException as error:
            raise AssertionError(f"{what}: {error!r}") from error
        said = capsys.readouterr().err
        assert status in DOCUMENTED, what
        assert "Traceback" not in said, what
        if status != 0 and "usage: " not in said:
            assert said.count("\n") == 1, (what, said)
        refused += status == 2
    assert refused > (last - first) / 2


def test_no_command_ends_in_a_stack_trace_or_never(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check(0, 40, tmp_path, monkeypatch, capsys)


@pytest.mark.thorough
@pytest.mark.timeout(3600)
def test_none_of_two_hundred_commands_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check(0, 200, tmp_path, monkeypatch, capsys)


def shell(
    line: str, pass_fds: Sequence[int] = (), **environment: str
) -> subprocess.CompletedProcess[bytes]:
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    return subprocess.run(
        ["bash", "-c", line.replace("seq2sweep", f"{sys.executable} -m seq2sweep.cli")],
        env={**os.environ, "PYTHONPATH": paths, **environment},
        capture_output=True,
        pass_fds=pass_fds,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    ("line", "environment", "status"),
    [
        ("seq2sweep preset >&-", {}, 0),
        ("seq2sweep preset <&- >&- 2>&-", {}, 0),
        ("seq2sweep preset nowhere <&- >&-", {}, 2),
        ("seq2sweep preset $'\\xff'", {}, 2),
        ("seq2sweep preset", {"PYTHONIOENCODING": "ascii"}, 0),
        ("seq2sweep preset", {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, 0),
    ],
)
def test_streams_that_are_closed_or_of_another_encoding(
    line: str, environment: dict[str, str], status: int
) -> None:
    done = shell(line, **environment)
    assert done.returncode == status, done.stderr
    assert b"Traceback" not in done.stderr
    assert environment == {} or "·".encode() in done.stdout


def test_a_stage_goes_on_when_the_reader_of_its_output_has_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project(tmp_path / "project", monkeypatch)
    stage = f"{sys.executable} -m pipeline.download"
    done = shell(f"set -o pipefail; {stage} 2>&1 | true")
    assert done.returncode == 0
    assert Path("data/raw/provenance.json").exists()


def test_a_stage_goes_on_when_its_terminal_has_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project(tmp_path / "project", monkeypatch)
    terminal, end = os.openpty()
    os.close(terminal)
    line = f"{sys.executable} -m pipeline.download >&{end} 2>&{end}"
    done = shell(line, pass_fds=(end,))
    os.close(end)
    assert done.returncode == 0
    assert Path("data/raw/provenance.json").exists()


def test_a_command_goes_on_when_the_reader_of_its_progress_has_gone(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\n"
        "from seq2sweep import commands\n"
        "from seq2sweep.cli import main\n"
        "def work(options):\n"
        "    print('first')\n"
        "    print('a bar', file=sys.stderr, flush=True)\n"
        "    print('last')\n"
        "commands.COMMANDS['preset'] = commands.COMMANDS['preset'][0], work\n"
        "sys.exit(main(['preset']))\n"
    )
    reader, end = os.pipe()
    os.close(reader)
    done = shell(f"{sys.executable} {program} 2>&{end}", pass_fds=(end,))
    wrong = shell(f"seq2sweep preset nowhere 2>&{end}", pass_fds=(end,))
    os.close(end)
    assert (done.returncode, done.stdout) == (0, b"first\nlast\n")
    assert wrong.returncode == 2


def test_a_log_goes_on_when_its_disk_has_room_again(tmp_path: Path) -> None:
    """EFBIG stands for ENOSPC here: a limit of the process that it can lift."""
    log, program = tmp_path / "log", tmp_path / "program.py"
    program.write_text(
        "import resource\n"
        "from seq2sweep import console\n"
        "console.ready_streams(lasting=True)\n"
        "unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)\n"
        "console.say('first')\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, unlimited[1]))\n"
        "console.say('lost')\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)\n"
        "console.say('last')\n"
    )
    assert shell(f"{sys.executable} {program} > {log}").returncode == 0
    assert log.read_text() == "first\nlast\n"
