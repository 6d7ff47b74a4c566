"""rpcfast's blocking `Client` on one connection, one call after the other."""

from __future__ import annotations

from benchmarks.load import HOST, Figures, Load, sequential
from benchmarks.rivals import _rpcfast

NAME = "rpcfast Client"
SETTINGS = f"{_rpcfast.SERVER}; rpcfast.Client, native frames, its defaults"

missing, versions, command = _rpcfast.missing, _rpcfast.versions, _rpcfast.command


def drive(load: Load) -> Figures:
    """Call as a user does."""
    from rpcfast import Client

    with Client(f"tcp://{HOST}:{load.port}") as client:
        return sequential(load, lambda: client.sum(2, 3), 5, NAME)
