"""A Ray of our own is its user's alone: its own token, the loopback interface, no exporters."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import grpc
import ray
from ray._private import ray_constants
from ray.core.generated.gcs_service_pb2 import GetClusterIdRequest
from ray.core.generated.gcs_service_pb2_grpc import NodeInfoGcsServiceStub

from seq2sweep.errors import OperationalError, UserError

LOOPBACK = "127.0.0.1"
LEAST_RAY = (2, 60)
"""Token authentication and the servers' addresses are known of this version and later ones."""
TOKEN = "token"
"""File in a session's folder."""
REPLY_SECONDS = 30.0

# Ray's exporters for Prometheus ask for no token. The agent's is switched off; the other two have
# no switch, but do not start on a port that there cannot be.
WITHOUT_EXPORTERS = {
    "RAY_enable_metrics_collection": "0",
    "AUTOSCALER_METRIC_PORT": "-1",
    "DASHBOARD_METRIC_PORT": "-1",
}


def check_version(version: str) -> None:
    """Raises UserError where Ray may know no tokens."""
    if tuple(int(part) for part in version.split(".")[:2]) < LEAST_RAY:
        raise UserError(
            f"Ray {version} may not keep strangers out: install Ray "
            f"{'.'.join(map(str, LEAST_RAY))} or newer (pip install -c constraints.txt -e .)"
        )


@contextlib.contextmanager
def own_token(folder: str) -> Iterator[None]:
    """Ray in this process and its children takes and shows a new token, whatever the user's is.

    256 random bits, in a file of `folder` that only this user reads: a command line could be read
    by all users.
    """
    path = Path(folder) / TOKEN
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secrets.token_hex(32))
    settings = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(path), "RAY_AUTH_TOKEN": None}
    with forced({**settings, **WITHOUT_EXPORTERS}):
        try:
            _read_again()
            yield
        finally:
            path.unlink(missing_ok=True)
    # Not while it is set: a cluster that is joined next wants the user's token.
    _read_again()


def _read_again() -> None:
    """Have Ray forget the settings and the token that it has read."""
    ray._raylet.Config.initialize("")
    ray._raylet.AuthenticationTokenLoader.instance().reset_cache()


@contextlib.contextmanager
def on_loopback() -> Iterator[str]:
    """Within, Ray takes the address that this gives, and all its servers listen there alone.

    By itself Ray puts the machine's own address in its place, and then most of its servers listen
    on all interfaces. On Windows and macOS it does not: this is the switch for that.
    """
    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield LOOPBACK
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def wants_token(channel: grpc.Channel, seconds: float) -> bool:
    """Whether the Ray behind a channel refuses who shows no token, as this call does."""
    stub = NodeInfoGcsServiceStub(channel)
    try:
        stub.GetClusterId(GetClusterIdRequest(), timeout=seconds)
    except grpc.RpcError as error:
        return bool(error.code() == grpc.StatusCode.UNAUTHENTICATED)
    return False


def check_private(address: str) -> None:
    """Raises OperationalError where the Ray that we started lets anybody in."""
    # Not a channel of Ray's, which would show the token.
    with grpc.insecure_channel(address) as channel:
        asks = wants_token(channel, REPLY_SECONDS)
    if not asks:
        raise OperationalError(
            f"the Ray that was started at {address} asks for no token, so it was ended: any user "
            f"of this machine could run programs as you (Ray {ray.__version__})"
        )


@contextlib.contextmanager
def forced(values: dict[str, str | None]) -> Iterator[None]:
    """Variables as given, None for unset, whatever the user has set; and as they were after."""
    before = {name: os.environ.get(name) for name in values}
    _set(values)
    try:
        yield
    finally:
        _set(before)


def _set(values: dict[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
