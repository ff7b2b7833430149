"""A cluster's job server: find a job's attempts, submit one, follow it. All by Ray's own client."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shlex
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

import aiohttp
import ray
import requests
from ray.job_submission import JobDetails, JobErrorType, JobType

from seq2sweep import console
from seq2sweep.cluster import ray_internals
from seq2sweep.cluster.local_cluster import forced
from seq2sweep.cluster.ray_internals import CONNECT_SECONDS
from seq2sweep.errors import OperationalError, UserError, first_line
from seq2sweep.redaction import secrets_in

ANSWER_SECONDS = 60.0
SILENCE_SECONDS = 60.0
"""Of a log: then it is asked for anew, as a connection may be dead without a word (a laptop that
slept)."""
PATIENCE_SECONDS = 600.0
"""How long a server may be away before following is given up; the job does not need it."""
START_SECONDS = 120.0
"""How long a head may take, after its server answers, until it can start jobs."""
TRACE = "Traceback (most recent call last):"
NO_AGENT = "No available agent"
NOT_TAKEN = (NO_AGENT, "status code 400")
"""In the trace of a head that failed: there is no agent yet, or it has refused the job."""
# These come before what is asked for, in Ray's client, the first before the second.
OVERRIDES = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")

_TROUBLE = (OSError, RuntimeError, requests.RequestException, aiohttp.ClientError, TimeoutError)


class JobRefusedError(OperationalError):
    """The job server has answered that it takes no job, and no request to it went unanswered."""


class JobServerAwayError(Exception):
    """The job server has not answered for PATIENCE_SECONDS."""


class JobServer:
    """A connection to the job server at an address such as http://host:8265.

    Where the cluster wants a token, it is that of $RAY_AUTH_TOKEN or ~/.ray/auth_token.
    Raises UserError where none answers, or does not take the token.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        _check_reachable(address)
        for name in ("ray", "ray.dashboard.modules.dashboard_sdk", "ray.dashboard.modules.job.sdk"):
            logging.getLogger(name).setLevel(logging.ERROR)
        ray_internals.use_token_of_user()
        try:
            with forced(dict.fromkeys(OVERRIDES)):
                self._client = ray_internals.job_client(address, (CONNECT_SECONDS, ANSWER_SECONDS))
        except ray.exceptions.AuthenticationError:
            _wants_token(address)
        except (*_TROUBLE, KeyError, ValueError) as error:
            _unreachable(address, error)

    def newest(self, job: str) -> JobDetails | None:
        """The last attempt at a job; None if there was none, or the cluster has forgotten it."""
        attempts = {
            number: found
            for found in self.jobs()
            if found.type == JobType.SUBMISSION and (number := attempt(job, found.submission_id))
        }
        return attempts[max(attempts)] if attempts else None

    def jobs(self) -> list[JobDetails]:
        """Each attempt at any job that the cluster knows."""
        try:
            return list(self._client.list_jobs())
        except _TROUBLE as error:
            raise OperationalError(
                f"the job server does not list its jobs: {_said(error)}"
            ) from None

    def submit(
        self, name: str, entry: str, archive: Path, variables: Mapping[str, str], **about: str
    ) -> bool:
        """Upload the project and start an attempt; False if one of that name is there already.

        Tries again for START_SECONDS where the cluster cannot start jobs yet, or does not answer.
        Raises JobRefusedError, or OperationalError where the job may have been taken.
        """
        give_up = time.monotonic() + START_SECONDS
        lost = False  # an answer: the job may have been taken
        while True:
            try:
                self._client.submit_job(
                    entrypoint=entry,
                    submission_id=name,
                    runtime_env={"working_dir": str(archive), "env_vars": dict(variables)},
                    metadata=about,
                )
                return True
            except RuntimeError as error:
                if "already exists" in str(error):
                    return lost and self._is_of(name, about)
                if NO_AGENT not in str(error) or time.monotonic() > give_up:
                    reason = _said(error)
                    sure = any(words in str(error) for words in NOT_TAKEN)
                    if _status(error) == 500 and _is_trace(error) and not sure:
                        raise OperationalError(
                            f"the job server failed ({reason}): submit again, which attaches to "
                            "the job if it has been taken"
                        ) from None
                    kind = OperationalError if lost else JobRefusedError
                    raise kind(f"the job server refused the job: {reason}") from None
                console.doing("waiting until the cluster can start jobs")
            except OSError as error:
                if time.monotonic() > give_up:
                    raise OperationalError(
                        f"the job server did not answer ({_said(error)}): submit again, "
                        "which attaches to the job if it has been taken"
                    ) from None
                lost = True
                console.doing("waiting for an answer of the job server")
            time.sleep(1)

    def _is_of(self, name: str, about: Mapping[str, str]) -> bool:
        """Whether an attempt was submitted with this metadata."""
        try:
            return bool(self._client.get_job_info(name).metadata == about)
        except _TROUBLE as error:
            raise OperationalError(
                f"the job server gives no status of {name}: {_said(error)}"
            ) from None

    def follow(self, name: str, write: Callable[[str], object]) -> JobDetails:
        """Hand on a job's log from its beginning until the job ends; gives how it ended.

        Goes on by itself after a broken connection. Raises JobServerAwayError when the server stays
        silent, OperationalError when it knows the job no more, and UserError when it does not take
        the token any more. Of a job that has ended the rest of the log may stay missing, which is
        said.
        """
        log, ended = _Log(write), None
        while True:
            try:
                if ended is None:
                    self._take_log(name, log)
                    details = self._client.get_job_info(name)
                    log.heard = time.monotonic()
                    ended = details if details.status.is_terminal() else None
                if ended is not None:
                    log.take(self._client.get_job_logs(name), 0)
                    return ended
            except (*_TROUBLE, ray.exceptions.AuthenticationError) as error:
                status = _status(error)
                if status in (401, 403):
                    _wants_token(self.address)
                if status == 404 and ended is None:
                    raise OperationalError(
                        f"the cluster was restarted and does not know {name}: submit again"
                    ) from None
                if status == 404 or time.monotonic() - log.heard > PATIENCE_SECONDS:
                    if ended is None:
                        raise JobServerAwayError from None
                    console.say(f"the rest of {name}'s log cannot be had: {_said(error)}")
                    return ended
                time.sleep(1)

    def _take_log(self, name: str, log: _Log) -> None:
        """Until the stream ends, or breaks: how the job stands is asked for in another way."""
        try:
            asyncio.run(self._tail(name, log))
        except _TROUBLE as error:
            if _status(error) in (401, 403, 404):
                raise
            time.sleep(1)

    async def _tail(self, name: str, log: _Log) -> None:
        position = 0
        stream = self._client.tail_job_logs(name)
        try:
            while True:
                text = await asyncio.wait_for(anext(stream), SILENCE_SECONDS)
                log.take(text, position)
                position += len(text)
        except (StopAsyncIteration, TimeoutError):
            return
        finally:
            await stream.aclose()


class _Log:
    """Hands on each character of a log once, however often it is read from the beginning.

    heard: when the server was last heard of, in time.monotonic(); one connection lasts for hours.
    """

    def __init__(self, write: Callable[[str], object]) -> None:
        self.write, self.seen = write, 0
        self.heard = time.monotonic()

    def take(self, text: str, position: int) -> None:
        new = text[max(0, self.seen - position) :]
        if new:
            self.write(new)
            self.seen = position + len(text)
        # Not before: a terminal that is held takes what it is given hours later.
        self.heard = time.monotonic()


def attempt(job: str, name: str | None) -> int:
    """The number of an attempt at a job by its name: `job` 1, `job-2` 2; 0 of any other name."""
    found = re.fullmatch(re.escape(job) + r"(?:-(\d+))?", name or "")
    return int(found[1] or 1) if found else 0


def attempt_name(job: str, number: int) -> str:
    """Ray takes no name twice, and appends to the log of one that was deleted: so each its own."""
    return job if number == 1 else f"{job}-{number}"


def did_not_start(ended: JobDetails) -> bool:
    """Whether Ray says that it did not start the program of a job that has ended.

    Ray notes the job's node when it is about to start that. A supervisor that died may have been
    killed, before as after.
    """
    if ended.driver_node_id is None:
        return ended.error_type not in (None, JobErrorType.JOB_SUPERVISOR_ACTOR_DIED)
    return bool(ended.error_type == JobErrorType.JOB_ENTRYPOINT_COMMAND_START_ERROR)


def in_shell(address: str) -> str:
    """The variables with which a shell runs `ray job` on the job server at an address, whatever
    else is set there, and with the token that this process shows."""
    ray_internals.use_token_of_user()
    mode = "RAY_AUTH_MODE=token " if os.environ.get("RAY_AUTH_MODE") == "token" else ""
    # Not --address: both of OVERRIDES come before that.
    return f"{mode}{OVERRIDES[0]}={shlex.quote(address)}"


def _status(error: Exception) -> int | None:
    """What a job server has answered to a request of HTTP, if it has refused that."""
    if isinstance(error, ray.exceptions.AuthenticationError):
        return 401  # or 403, which it does not say
    if isinstance(error, aiohttp.WSServerHandshakeError):  # to the request for a log
        return error.status
    found = re.match(r"Request failed with status code (\d+)", str(error))
    return int(found[1]) if found else None


def _check_reachable(address: str) -> None:
    try:
        parts = urlsplit(address)
        usable = parts.scheme in ("http", "https") and parts.hostname and not secrets_in(address)
    except ValueError:  # such as a bracket that is not closed
        usable = False
    if not usable:
        # Not shown: it may hold a password.
        raise UserError("the job server's address must be as http://host:8265")
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        with socket.create_connection((parts.hostname, port), timeout=CONNECT_SECONDS):
            pass
    except (OSError, ValueError) as error:
        _unreachable(address, error)


def _wants_token(address: str) -> NoReturn:
    raise UserError(
        f"the job server at {address} wants this cluster's token: put it into "
        "~/.ray/auth_token or $RAY_AUTH_TOKEN, and set RAY_AUTH_MODE=token"
    ) from None


def _unreachable(address: str, error: Exception) -> NoReturn:
    raise UserError(
        f"no job server of Ray answers at {address} ({_said(error)}): start the cluster, or "
        "fix cluster.job_server (http://host:8265)"
    ) from None


def _said(error: Exception) -> str:
    """Its first line; of a trace, which a server that fails answers with, what was raised."""
    if not _is_trace(error):
        return first_line(error)[:300]
    # Frames are indented, what was raised is not; behind it stands the end of Ray's own sentence.
    _, _, frames = str(error).rpartition(TRACE)
    raised = re.split(r"\n(?=\S)", frames, maxsplit=1)[-1]
    return " ".join(raised.split()).rstrip(" .")[:300]


def _is_trace(error: Exception) -> bool:
    return TRACE in str(error)
