"""gRPC's thread-pool server, driven by gRPC's asyncio client."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.load import HOST
from benchmarks.rivals import _grpc, module_command

NAME = "gRPC sync"
SETTINGS = "grpc.server with 10 threads, one process; driven by the grpc.aio client on uvloop, a channel a connection"

missing, versions, drive = _grpc.missing, _grpc.versions, _grpc.drive


def command(port: int) -> list[str]:
    """Return the server's command."""
    return module_command("grpc_sync", port)


def _serve(port: int) -> None:
    import grpc

    _, total = _grpc.messages()

    def add(request: Any, _: object) -> Any:
        return total(value=request.a + request.b)

    server = grpc.server(ThreadPoolExecutor(max_workers=10))
    server.add_generic_rpc_handlers((_grpc.handlers(add),))
    server.add_insecure_port(f"{HOST}:{port}")
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
