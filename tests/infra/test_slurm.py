"""infra/slurm/repro.sbatch against stand-ins for Slurm, Ray and dvc, which note their calls."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from ray.util.state.state_cli import AvailableFormat, output_with_format

from tests.infra.files import INFRA

SCRIPT = INFRA / "slurm/repro.sbatch"
NOTE = 'echo "$(basename "$0") $*" >>"$CALLS"\n'
STAND_INS = {
    "srun": NOTE
    + """
        name=
        while [[ $1 == --* ]]; do
            case $1 in --nodelist=*) name=${1#*=} ;; esac
            shift
        done
        NODE=$name exec "$@"
""",
    "hostname": """
        case $1 in
            --ip-address) echo "$BY_NAME" ;;
            --all-ip-addresses) echo "$ALL_ADDRESSES" ;;
        esac""",
    "scontrol": NOTE
    + """
        case "$1 $2" in
            "show hostnames") printf "%s\\n" ${3//,/ } ;;
            "show job") [ -n "$SLURM_TIME_FORMAT" ] || echo "$SHOWN" ;;
        esac""",
    "ray": """
        if [ "$1" = start ]; then
            trap 'echo "ray on $NODE ends" >>"$CALLS"; exit 0' TERM
            echo "ray on $NODE mode $RAY_AUTH_MODE token $(stat -c %a "$RAY_AUTH_TOKEN_PATH")" \\
                "$(stat -c %a "$(dirname "$RAY_AUTH_TOKEN_PATH")")${RAY_AUTH_TOKEN+, not taken}" \\
                >>"$CALLS"
            while true; do sleep 0.1; done
        fi
        if [ -n "$MEANWHILE" ]; then
            read -r _ _ _ _ _ script _ </proc/$$/stat  # it leads the session
            kill "-$MEANWHILE" "$script"
        fi
        proxied() { [[ ,$2, != *,127.0.0.1,* ]] && [ -n "$1" ]; }
        if proxied "$http_proxy" "$no_proxy" || proxied "$HTTP_PROXY" "$NO_PROXY" ||
            [ -n "$RAY_API_SERVER_ADDRESS$FAILS" ]; then
            printf "%s\\n" "Traceback" "$FAILS" "" >&2
            exit 1
        fi
        # Ray itself lists a hundred at most, unless it is told how many.
        [[ $* != *"--limit 10000"* ]] || echo "$LISTED"
        """,
    "dvc": NOTE
    + """
        trap 'echo "dvc saves" >>"$CALLS"; exit "$ON_SIGNAL"' INT
        echo "address $RAY_ADDRESS${RAY_AUTH_TOKEN+, another token}" >>"$CALLS"
        echo "umask $(umask)" >>"$CALLS"
        while [ -z "$ENDS" ]; do sleep 0.1; done
        # Not before both nodes have noted that they run.
        until [ "$(grep -c "^ray on . mode" "$CALLS")" = 2 ]; do sleep 0.1; done
        exit $ENDS""",
}

RAY_RUNS = "ray on {} mode token token 600 700"
ALIVE = {"node_id": "1f", "state": "ALIVE", "labels": {"ray.io/node-id": "1f"}}


def listed(nodes: int) -> str:
    """What `ray list nodes --format json` writes of so many nodes, by Ray itself."""
    return output_with_format([ALIVE] * nodes, schema=None, format=AvailableFormat.JSON)


def shown(preempted: str) -> str:
    """Of what `scontrol show job` writes, the line that says when the job was preempted."""
    return f"   PreemptEligibleTime=2026-01-31T12:00:00 PreemptTime={preempted}"


class Job:
    """The script, run as Slurm would, on nodes a and b."""

    def __init__(self, folder: Path, *command: str, **settings: str) -> None:
        self.folder = folder
        self.calls_path = folder / "calls"
        programs = folder / "programs"
        programs.mkdir()
        for name, text in STAND_INS.items():
            (programs / name).write_text("#!/bin/bash\n" + text + "\n")
            (programs / name).chmod(0o755)
        environment = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "CALLS": str(self.calls_path),
            "SLURM_SUBMIT_DIR": str(folder),
            "SLURM_JOB_ID": "4242",
            "SLURM_JOB_NODELIST": "a,b",
            "SLURM_CPUS_PER_TASK": "8",
            "RAY_START_PAUSE": "0.05",
            "RAY_START_TRIES": "3",
            "NODE_FOLDER": str(folder),
            "LISTED": listed(2),
            "ENDS": "",
            "MEANWHILE": "",
            "FAILS": "",
            "ON_SIGNAL": "1",
            "BY_NAME": "fe80::7 10.0.0.7",
            "ALL_ADDRESSES": "192.0.2.9",
            "SHOWN": shown("None"),
        }
        self.log = (folder / "log").open("wb")
        self.process = subprocess.Popen(
            ["bash", SCRIPT, *command],
            env=environment | settings,
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
            umask=0o027,
        )

    @property
    def calls(self) -> list[str]:
        return self.calls_path.read_text().splitlines() if self.calls_path.exists() else []

    def wait_for(self, call: str) -> None:
        deadline = time.monotonic() + 60
        while call not in self.calls:
            assert self.process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < deadline, self.calls
            time.sleep(0.02)

    def end(self) -> int:
        return self.process.wait(60)


@pytest.fixture
def submit(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    jobs = []

    def start(*command: str, **settings: str) -> Job:
        jobs.append(Job(tmp_path, *command, **settings))
        return jobs[-1]

    yield start
    for job in jobs:
        if job.process.poll() is None:
            # What it started has process groups of its own, which it ends.
            os.kill(job.process.pid, signal.SIGTERM)
            job.end()
        job.log.close()


def test_it_starts_ray_on_all_nodes_and_then_the_stage(submit: Callable[..., Job]) -> None:
    job = submit(ENDS="0", SLURM_GPUS_ON_NODE="4")
    assert job.end() == 0
    starts = [call for call in job.calls if call.startswith("srun") and " ray start " in call]
    head, worker = sorted(starts, key=lambda call: "--head" not in call)  # they start at once
    unset = "env -u MLFLOW_TRACKING_PASSWORD -u MLFLOW_TRACKING_TOKEN"
    assert f"--nodelist=a --export=ALL {unset} ray start --head" in head
    assert "--node-ip-address=10.0.0.7 --port=24242" in head
    assert "--dashboard-host=127.0.0.1" in head
    assert f"--nodelist=b --export=ALL {unset} ray start --address=10.0.0.7:24242" in worker
    for start in starts:
        assert "--block" in start
        assert "--num-cpus=8" in start
        assert "--num-gpus=4" in start
        # A step does not inherit it from the job.
        assert "--cpus-per-task=8" in start
    assert "dvc repro" in job.calls
    assert "address 10.0.0.7:24242" in job.calls
    # Without them it may end with an error since Slurm 24.05, or wait for the job's other steps.
    for call in job.calls:
        if call.startswith("srun "):
            assert " --overlap " in call
            assert " --cpus-per-task=" in call


@pytest.mark.parametrize(
    ("settings", "address"),
    [
        ({"BY_NAME": "127.0.1.1"}, "192.0.2.9"),  # Debian
        (
            {"BY_NAME": "127.0.0.1", "ALL_ADDRESSES": "2001:db8::9 192.0.2.10 10.1.1.1 "},
            "192.0.2.10",
        ),
        ({"HEAD_ADDRESS": "10.9.9.9"}, "10.9.9.9"),
        ({"HEAD_ADDRESS": "2001:db8::9"}, "[2001:db8::9]"),
        ({"HEAD_ADDRESS": "[2001:db8::9]"}, "[2001:db8::9]"),
    ],
    ids=str,
)
def test_other_nodes_are_told_an_address_that_they_can_reach(
    submit: Callable[..., Job], settings: dict[str, str], address: str
) -> None:
    job = submit(ENDS="0", **settings)
    assert job.end() == 0
    assert f"address {address}:24242" in job.calls
    (head,) = [call for call in job.calls if call.startswith("srun") and " --head " in call]
    assert f" --node-ip-address={address.strip('[]')} --port=24242 " in head
    assert any(
        call.endswith(f"--address={address}:24242 --num-cpus=8 --block --disable-usage-stats")
        for call in job.calls
    )


def test_a_head_without_an_address_ends_the_job(submit: Callable[..., Job]) -> None:
    job = submit(BY_NAME="127.0.1.1", ALL_ADDRESSES="")
    assert job.end() == 1
    assert "set HEAD_ADDRESS" in (job.folder / "log").read_text()
    assert not any(" ray start " in call for call in job.calls)


@pytest.mark.parametrize("of_the_shell", [{}, {"RAY_AUTH_TOKEN": "of another cluster"}], ids=str)
def test_ray_wants_a_token_that_this_user_alone_can_read(
    submit: Callable[..., Job], of_the_shell: dict[str, str]
) -> None:
    job = submit(**of_the_shell)
    job.wait_for("address 10.0.0.7:24242")
    for node in "ab":
        job.wait_for(RAY_RUNS.format(node))
    token = job.folder / ".slurm/4242/token"
    assert len(token.read_text()) == 64
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert token.read_text() not in (job.folder / "log").read_text()
    assert not any(token.read_text() in call for call in job.calls)


def test_the_code_of_workers_lies_where_no_other_user_can_write(
    submit: Callable[..., Job], tmp_path: Path
) -> None:
    own = tmp_path / "s2s-4242"
    (own / "r/_ray_pkg").mkdir(parents=True)  # of a node that failed, or of somebody else
    own.chmod(0o777)
    job = submit()
    job.wait_for("dvc repro")
    [head] = [call for call in job.calls if "ray start --head" in call]
    assert f" --temp-dir={own}/r " in head
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    assert [*own.iterdir()] == []  # the stand-in for Ray makes nothing
    os.kill(job.process.pid, signal.SIGTERM)
    assert job.end() == 1
    assert not own.exists()


def test_without_a_folder_of_its_own_ray_does_not_start(
    submit: Callable[..., Job], tmp_path: Path
) -> None:
    job = submit(NODE_FOLDER=str(tmp_path / "missing"))
    assert job.end() == 1
    said = f"{tmp_path}/missing/s2s-4242 cannot be made on all of a b: set NODE_FOLDER"
    assert said in (job.folder / "log").read_text()
    assert not any(" ray start " in call for call in job.calls)


def test_others_can_read_of_the_results_what_the_user_lets_them(submit: Callable[..., Job]) -> None:
    job = submit(ENDS="0")
    assert job.end() == 0
    assert "umask 0027" in job.calls


def test_it_saves_before_its_time_is_up_and_goes_back_into_the_queue(
    submit: Callable[..., Job],
) -> None:
    job = submit()
    for call in ("address 10.0.0.7:24242", *map(RAY_RUNS.format, "ab")):
        job.wait_for(call)
    os.kill(job.process.pid, signal.SIGUSR1)
    assert job.end() == 0
    saved, requeued = job.calls.index("dvc saves"), job.calls.index("scontrol requeue 4242")
    assert saved < requeued
    for node in "ab":
        assert saved < job.calls.index(f"ray on {node} ends") < requeued
    assert not (job.folder / ".slurm/4242").exists()


def test_a_stage_that_says_75_itself_goes_back_too(submit: Callable[..., Job]) -> None:
    job = submit("dvc", "train", ON_SIGNAL="75")
    job.wait_for("address 10.0.0.7:24242")
    assert "dvc train" in job.calls
    os.kill(job.process.pid, signal.SIGUSR1)
    assert job.end() == 0
    assert "scontrol requeue 4242" in job.calls


@pytest.mark.parametrize(
    ("stage", "others_end", "left", "again"),
    [
        ("evaluate", False, 300, False),
        ("evaluate", False, None, False),  # Slurm before 22.05
        ("evaluate", False, 3600, True),  # the signal of a preemption
        ("evaluate", True, 300, True),
        ("train", False, 300, True),
    ],
)
def test_what_had_a_whole_slice_in_vain_is_not_begun_anew_for_ever(
    submit: Callable[..., Job],
    tmp_path: Path,
    stage: str,
    others_end: bool,
    left: int | None,
    again: bool,
) -> None:
    """left: seconds until the end of the slice, as the stage is asked to save."""
    lock = tmp_path / "dvc.lock"
    lock.write_text("encode")
    end = {} if left is None else {"SLURM_JOB_END_TIME": str(int(time.time()) + left)}
    # As the command of a stage has it.
    job = submit("dvc", "repro", "-m", f"pipeline.{stage}", **end)
    job.wait_for("address 10.0.0.7:24242")
    lock.write_text("encode train" if others_end else "encode")
    os.kill(job.process.pid, signal.SIGUSR1)
    assert job.end() == (0 if again else 1)
    assert "dvc saves" in job.calls
    assert ("scontrol requeue 4242" in job.calls) == again
    told = "evaluate takes longer than a slice, and begins anew in each: ask for more with sbatch"
    assert (told in (job.folder / "log").read_text()) != again


def test_what_ends_well_in_its_last_minutes_is_done(submit: Callable[..., Job]) -> None:
    job = submit(ON_SIGNAL="0")
    job.wait_for("address 10.0.0.7:24242")
    os.kill(job.process.pid, signal.SIGUSR1)
    assert job.end() == 0
    assert "scontrol requeue 4242" not in job.calls


@pytest.mark.parametrize("status", [1, 2])
def test_what_fails_is_not_tried_again(submit: Callable[..., Job], status: int) -> None:
    job = submit(ENDS=str(status))
    assert job.end() == status
    assert "scontrol requeue 4242" not in job.calls
    assert not (job.folder / ".slurm/4242").exists()


@pytest.mark.parametrize("status", [0, 1])
def test_a_preemption_that_ends_ray_under_the_stage_puts_the_job_back(
    submit: Callable[..., Job], status: int
) -> None:
    """By default Slurm signals the steps of a job, and not this script."""
    shown_now = shown("2026-01-31T12:34:56")
    job = submit(ENDS=str(status), SHOWN=shown_now, SLURM_TIME_FORMAT="relative")
    assert job.end() == 0
    assert ("scontrol requeue 4242" in job.calls) == bool(status)
    assert not (job.folder / ".slurm/4242").exists()


def test_a_program_that_is_not_there_is_no_success(submit: Callable[..., Job]) -> None:
    """127 is the shell's word for that too."""
    job = submit("no-such-program")
    assert job.end() == 127
    assert "scontrol requeue 4242" not in job.calls


def test_a_job_that_is_suspended_goes_on_when_it_is_resumed(submit: Callable[..., Job]) -> None:
    """As by `scontrol suspend`, or for a job of higher priority: all of its processes at once."""
    job = submit()
    for call in ("address 10.0.0.7:24242", *map(RAY_RUNS.format, "ab")):
        job.wait_for(call)
    script = psutil.Process(job.process.pid)
    for number in (signal.SIGTSTP, signal.SIGSTOP, signal.SIGCONT):
        for process in (script, *script.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):  # a sleep of the stand-ins
                process.send_signal(number)
        time.sleep(0.5)
    assert job.process.poll() is None, (job.folder / "log").read_text()
    os.kill(job.process.pid, signal.SIGUSR1)
    assert job.end() == 0
    assert job.calls.index("dvc saves") < job.calls.index("scontrol requeue 4242")


def test_a_cancelled_job_saves_and_stays_away(submit: Callable[..., Job]) -> None:
    job = submit()
    job.wait_for("address 10.0.0.7:24242")
    os.kill(job.process.pid, signal.SIGTERM)
    assert job.end() == 1
    assert "dvc saves" in job.calls
    assert "scontrol requeue 4242" not in job.calls


def test_a_node_that_does_not_come_up_ends_the_job(submit: Callable[..., Job]) -> None:
    job = submit(LISTED=listed(1))
    assert job.end() == 1
    assert "Ray has not come up on all of a b" in (job.folder / "log").read_text()
    assert "dvc repro" not in job.calls
    assert not (job.folder / ".slurm/4242").exists()


@pytest.mark.parametrize(
    "of_the_shell",
    [
        {"http_proxy": "http://proxy:3128"},
        {"HTTP_PROXY": "http://proxy:3128", "NO_PROXY": "intranet"},
        {"RAY_API_SERVER_ADDRESS": "http://another-cluster:8265"},
    ],
    ids=str,
)
def test_nodes_are_counted_past_what_the_shell_says_of_proxies_and_other_clusters(
    submit: Callable[..., Job], of_the_shell: dict[str, str]
) -> None:
    job = submit(ENDS="0", **of_the_shell)
    assert job.end() == 0, (job.folder / "log").read_text()


def test_why_nodes_could_not_be_counted_is_said(submit: Callable[..., Job]) -> None:
    job = submit(LISTED="", RAY_START_TRIES="1", FAILS="requests: no Ray at http://10.0.0.1")
    assert job.end() == 1
    last = (job.folder / "log").read_text().splitlines()[-1]
    said = "Ray has not come up on all of a b: 0 of 2 nodes. requests: no Ray at http://10.0.0.1"
    assert last == said


def test_a_start_of_ray_that_takes_long_is_told(submit: Callable[..., Job]) -> None:
    job = submit(LISTED=listed(1), RAY_START_TRIES="20", RAY_START_PAUSE="0")
    assert job.end() == 1
    assert (job.folder / "log").read_text().count("Ray is up on 1 of 2 nodes\n") == 2


@pytest.mark.parametrize(
    ("signal_name", "nodes_up", "left", "again", "said"),
    [
        ("TERM", 2, 3600, False, "asked to end before the stage began"),
        ("TERM", 1, 3600, False, "asked to end before the stage began"),
        ("USR1", 2, 3600, True, "time is nearly up"),  # of a preemption
        ("USR1", 1, 3600, True, "time is nearly up"),
        # It would be so in each slice.
        ("USR1", 1, 300, False, "Ray takes longer to start than a slice: ask for more"),
    ],
)
def test_a_signal_as_ray_comes_up_is_not_lost(
    submit: Callable[..., Job],
    signal_name: str,
    nodes_up: int,
    left: int,
    again: bool,
    said: str,
) -> None:
    end = str(int(time.time()) + left)
    job = submit(MEANWHILE=signal_name, LISTED=listed(nodes_up), SLURM_JOB_END_TIME=end)
    assert job.end() == (0 if again else 1)
    assert said in (job.folder / "log").read_text()
    assert ("scontrol requeue 4242" in job.calls) == again
    assert "dvc repro" not in job.calls
    assert not (job.folder / ".slurm/4242").exists()


def test_slurm_is_told_what_the_script_relies_on() -> None:
    header = SCRIPT.read_text(encoding="utf-8")
    for option in ("--requeue", "--open-mode=append", "--signal=B:USR1@300", "--exclusive"):
        assert f"\n#SBATCH {option}\n" in header
