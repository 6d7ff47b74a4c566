"""rpcfast's `AsyncClient`: many calls at once, over one connection or several clients."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from benchmarks.load import HOST, Figures, Load, concurrent
from benchmarks.rivals import _rpcfast, missing_packages

if TYPE_CHECKING:
    from rpcfast import AsyncClient

NAME = "rpcfast AsyncClient"
SETTINGS = f"{_rpcfast.SERVER}; rpcfast.AsyncClient on uvloop, native frames, its defaults"

versions, command = _rpcfast.versions, _rpcfast.command


def missing() -> str | None:
    """Return why this rival cannot run here, or None."""
    return _rpcfast.missing() or missing_packages("uvloop")


def drive(load: Load) -> Figures:
    """Call as a user does, with one client for each connection."""
    import uvloop

    return uvloop.run(_drive(load))


async def _drive(load: Load) -> Figures:
    from rpcfast import AsyncClient

    async with contextlib.AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(AsyncClient(f"tcp://{HOST}:{load.port}")) for _ in range(load.connections)
        ]
        return await concurrent(load, [_caller(client) for client in clients], 5, NAME)


def _caller(client: AsyncClient) -> Callable[[], Awaitable[object]]:
    return lambda: client.sum(2, 3)
