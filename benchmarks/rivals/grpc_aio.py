"""gRPC's asyncio server, driven by gRPC's asyncio client."""

from __future__ import annotations

import sys
from typing import Any

from benchmarks.load import HOST
from benchmarks.rivals import _grpc, module_command

NAME = "grpc.aio"
SETTINGS = (
    "grpc.aio.server, async handler, one process, on uvloop (a tenth faster than asyncio's loop); "
    "driven by the grpc.aio client on uvloop, a channel a connection"
)

missing, versions, drive = _grpc.missing, _grpc.versions, _grpc.drive


def command(port: int) -> list[str]:
    """Return the server's command."""
    return module_command("grpc_aio", port)


async def _serve(port: int) -> None:
    import grpc

    _, total = _grpc.messages()

    async def add(request: Any, _: object) -> Any:
        return total(value=request.a + request.b)

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((_grpc.handlers(add),))
    server.add_insecure_port(f"{HOST}:{port}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    import uvloop

    uvloop.run(_serve(int(sys.argv[1])))
