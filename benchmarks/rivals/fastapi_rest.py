"""FastAPI, the REST way: POST with typed parameters and a response model, behind uvicorn, connections kept."""

from __future__ import annotations

import json
import socket
import sys
from typing import TYPE_CHECKING

from benchmarks.load import HOST, Figures, Load, connect, replay
from benchmarks.rivals import missing_packages, package_versions
from benchmarks.wire import Wire

if TYPE_CHECKING:
    from fastapi import FastAPI

NAME = "FastAPI POST"
SETTINGS = (
    "uvicorn, uvloop, httptools, one worker, keep-alive, access log off; async def, pydantic model in, "
    "response model out; more than one call in flight is pipelined"
)
_PACKAGES = ("fastapi", "pydantic", "uvicorn", "uvloop", "httptools")


def missing() -> str | None:
    """Return why this rival cannot run here, or None."""
    return missing_packages(*_PACKAGES)


def versions() -> dict[str, str]:
    """Return the version of everything whose speed is measured."""
    return package_versions(*_PACKAGES)


def command(port: int) -> list[str]:
    """Return the server's command."""
    options = ["--loop", "uvloop", "--http", "httptools", "--workers", "1", "--no-access-log", "--log-level", "warning"]
    app = ["--factory", "benchmarks.rivals.fastapi_rest:make_app", "--host", HOST, "--port", str(port)]
    return [sys.executable, "-m", "uvicorn", *app, *options]


def drive(load: Load) -> Figures:
    """Replay one POST over kept connections (with more than one in flight: pipelined)."""
    body = json.dumps({"a": 2, "b": 3}).encode()
    head = f"POST /sum HTTP/1.1\r\nHost: {HOST}:{load.port}\r\nContent-Type: application/json\r\n"
    request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    with connect(load.port) as sock:
        sock.sendall(request)
        answer = _answer(sock)
    date = answer.index(b"date: ")
    return replay(load, Wire(request, answer, varies=(slice(date, answer.index(b"\r\n", date)),)))


def make_app() -> FastAPI:
    """Return the application."""
    from fastapi import FastAPI
    from pydantic import BaseModel

    class Pair(BaseModel):
        a: int
        b: int

    app = FastAPI()

    async def add(pair: Pair) -> int:
        return pair.a + pair.b

    add.__annotations__["pair"] = Pair  # a local class, which FastAPI cannot look up by its name
    app.post("/sum", response_model=int)(add)
    return app


def _answer(sock: socket.socket) -> bytes:
    """Return one whole answer; raises ValueError when it is not 200 with the body 5."""
    answer = b""
    while not answer.endswith(b"\r\n\r\n5"):
        more = sock.recv(4096)
        if not more:
            break
        answer += more
    if not answer.startswith(b"HTTP/1.1 200 ") or not answer.endswith(b"\r\n\r\n5"):
        msg = f"FastAPI answered {answer!r}"
        raise ValueError(msg)
    return answer
