"""A blocking socket's ping-pong against the bare uvloop echo: the least that a blocking client's call can take."""

from __future__ import annotations

from benchmarks.load import Figures, Load, connect, sequential
from benchmarks.rivals import _native, echo

NAME = "blocking socket ping-pong"
SETTINGS = "socket.send and socket.recv of the native call's bytes against the bare uvloop echo"

missing, versions, command = echo.missing, echo.versions, echo.command


def drive(load: Load) -> Figures:
    """Send the native call's bytes and wait for them, again and again."""
    request = _native.call("sum")
    with connect(load.port) as sock:
        sock.settimeout(None)  # a timeout would cost a poll() per call
        send, receive = sock.send, sock.recv

        def ping() -> bytes:
            send(request)
            return receive(4096)

        return sequential(load, ping, request, "blocking socket")
