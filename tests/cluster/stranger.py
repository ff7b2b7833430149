"""A program: another user of this machine, or another machine, tries what it can reach.

Arguments: user id to become, a JSON list of [address, port] to ask, a JSON list of files to read.
Prints JSON: what answered, and which files could be read.
"""

from __future__ import annotations

import http.client
import http.server
import json
import os
import socket
import sys
import threading

import grpc

SECONDS = 5.0
WRONG = "0" * 64
HEADERS: list[dict[str, str]] = [{}, {"Authorization": f"Bearer {WRONG}"}]
COMMAND = json.dumps({"entrypoint": "id"}).encode()
PAGES = [
    ("GET", "/", b""),
    ("GET", "/metrics", b""),
    ("GET", "/api/jobs/", b""),
    ("POST", "/api/jobs/", COMMAND),
    ("POST", "/api/job_agent/jobs/", COMMAND),
    ("POST", "/get_or_create_runtime_env", b""),
]
METHODS = [
    f"/ray.rpc.{name}"
    for name in (
        "NodeInfoGcsService/GetClusterId",
        "NodeInfoGcsService/GetAllNodeInfo",
        "InternalKVGcsService/InternalKVGet",
        "JobInfoGcsService/AddJob",
        "NodeManagerService/GetNodeStats",
        "NodeManagerService/RequestWorkerLease",
        "ObjectManagerService/Pull",
        "CoreWorkerService/PushTask",
        "CoreWorkerService/GetCoreWorkerStats",
        "ReporterService/GetTraceback",
        "MetricsService/Export",
    )
]
NOBODY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


def main() -> None:
    user, places, files = int(sys.argv[1]), json.loads(sys.argv[2]), json.loads(sys.argv[3])
    # All of Python that is imported late, before it cannot be read any more.
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        ask("127.0.0.1", server.server_port)
        server.shutdown()
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
    answers = {f"{address}:{port}": sorted(set(ask(address, port))) for address, port in places}
    print(json.dumps({"answers": answers, "read": [path for path in files if reads(path)]}))


def ask(address: str, port: int) -> list[str]:
    """What the server says; nothing: no connection."""
    try:
        socket.create_connection((address, port), timeout=SECONDS).close()
    except OSError:
        return []
    said = ["connected"]
    for headers in HEADERS:
        for method, page, body in PAGES:
            said.append(f"HTTP {http_status(address, port, method, page, body, headers)}")
        said += grpc_statuses(address, port, headers)
    return said


def http_status(
    address: str, port: int, method: str, page: str, body: bytes, headers: dict[str, str]
) -> int:
    """0: it does not speak HTTP."""
    connection = http.client.HTTPConnection(address, port, timeout=SECONDS)
    try:
        connection.request(method, page, body, headers | {"Content-Type": "application/json"})
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def grpc_statuses(address: str, port: int, headers: dict[str, str]) -> list[str]:
    """Of each method; none: it does not speak gRPC."""
    metadata = [(name.lower(), value) for name, value in headers.items()]
    said = []
    with grpc.insecure_channel(f"{address}:{port}") as channel:
        for method in METHODS:
            try:
                channel.unary_unary(method)(b"", timeout=SECONDS, metadata=metadata)
                said.append(f"gRPC OK {method}")
            except grpc.RpcError as error:
                if error.code() in NOBODY:
                    return said
                said.append(f"gRPC {error.code().name}")
    return said


def reads(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_RDONLY))
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()
