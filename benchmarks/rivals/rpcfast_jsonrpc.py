"""rpcfast by JSON-RPC 2.0 over raw TCP, one object a line, replayed as bytes."""

from __future__ import annotations

import json

from benchmarks.load import Figures, Load, connect, replay
from benchmarks.rivals import _rpcfast
from benchmarks.wire import Wire

NAME = "rpcfast JSON-RPC"
SETTINGS = f"{_rpcfast.SERVER}; JSON-RPC 2.0 over raw TCP, parameters by name"

missing, versions, command = _rpcfast.missing, _rpcfast.versions, _rpcfast.command


def drive(load: Load) -> Figures:
    """Replay one call; the first answer is parsed, the others must be its very bytes."""
    call = {"jsonrpc": "2.0", "method": load.procedure, "params": {"a": 2, "b": 3}, "id": 1}
    request = json.dumps(call, separators=(",", ":")).encode() + b"\n"
    with connect(load.port) as sock, sock.makefile("rb") as lines:
        sock.sendall(request)
        answer = lines.readline()
    if json.loads(answer) != {"jsonrpc": "2.0", "result": 5, "id": 1}:
        msg = f"rpcfast answered {answer!r}"
        raise ValueError(msg)
    return replay(load, Wire(request, answer))
