"""Calls of rpcfast's native protocol as bytes, after docs/protocol.md; imports nothing of rpcfast."""

from __future__ import annotations

import socket
import struct

from benchmarks.wire import Wire

_HEADER = struct.Struct(">IQBBH")  # bytes that follow, id, kind, flags, length of the name
OPENING = b"\xf5rpc\x01"
_CALL, _RESULT, _HELLO = 1, 3, 12
_ID_AT = 4


def call(name: str) -> bytes:
    """Return a call of `name` with the parameters 2 and 3 by position, id 1."""
    body = b"\x92\x02\x03"
    return _HEADER.pack(len(name) + len(body), 1, _CALL, 0, len(name)) + name.encode() + body


def wire(name: str) -> Wire:
    """Return the wire of calls whose result is 5."""
    result = b"\x05"
    return Wire(call(name), _HEADER.pack(len(result), 1, _RESULT, 0, 0) + result, _ID_AT, _ID_AT, open=_open)


def echo_wire() -> Wire:
    """Return the same call's bytes for a server that sends back what it gets."""
    return Wire(call("sum"), call("sum"), _ID_AT, _ID_AT)


def _open(sock: socket.socket) -> None:
    """Send the opening and take the server's opening and HELLO; raises ValueError when it answers anything else."""
    sock.sendall(OPENING)
    opening = receive(sock, len(OPENING))
    size, _, kind, _, _ = _HEADER.unpack(receive(sock, _HEADER.size))
    receive(sock, size)
    if opening != OPENING or kind != _HELLO:
        msg = f"the server opened with {opening!r} and a frame of kind {kind}"
        raise ValueError(msg)


def receive(sock: socket.socket, size: int) -> bytes:
    """Receive exactly `size` bytes; raises ConnectionError when the connection ends before."""
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            msg = f"the server closed the connection after {data!r}"
            raise ConnectionError(msg)
        data += more
    return data
