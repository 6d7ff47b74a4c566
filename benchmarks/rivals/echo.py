"""A bare uvloop `Protocol` that sends back what it receives: the most that any Python server could reach."""

from __future__ import annotations

import asyncio
import sys
from typing import cast

from benchmarks.load import HOST, Figures, Load, replay
from benchmarks.rivals import _native, missing_packages, module_command, package_versions

NAME = "bare uvloop echo"
SETTINGS = "asyncio.Protocol on uvloop, transport.write(data) in data_received; the bytes of the native call"


def missing() -> str | None:
    """Return why this rival cannot run here, or None."""
    return missing_packages("uvloop")


def versions() -> dict[str, str]:
    """Return the version of everything whose speed is measured."""
    return package_versions("uvloop")


def command(port: int) -> list[str]:
    """Return the server's command."""
    return module_command("echo", port)


def drive(load: Load) -> Figures:
    """Replay the native call's bytes."""
    return replay(load, _native.echo_wire())


class _Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._write = cast("asyncio.Transport", transport).write

    def data_received(self, data: bytes) -> None:
        self._write(data)


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(_Echo, HOST, port)
    await server.serve_forever()


if __name__ == "__main__":
    import uvloop

    uvloop.run(_serve(int(sys.argv[1])))
