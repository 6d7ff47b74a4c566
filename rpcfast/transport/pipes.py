"""A child process as a server, and a process's own standard input and output as a connection; floor 1."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["PipeTransport", "connect_stdio", "spawn"]


def spawn(command: tuple[str, ...]) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Start a child whose standard input and output are one socket; give our end of it. Its errors go where ours go.

    Raises `OSError` when the command cannot be started. The caller closes the socket, then waits for the child.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            child = subprocess.Popen(command, stdin=theirs.fileno(), stdout=theirs.fileno())  # noqa: S603  # the user's own
        except OSError:
            ours.close()
            raise
    return ours, child


class PipeTransport(asyncio.Transport):
    """A reading and a writing pipe as one transport."""

    def __init__(self, reader: asyncio.ReadTransport, writer: asyncio.WriteTransport) -> None:
        super().__init__({"peername": "stdio"})
        self._reader = reader
        self._writer = writer

    def __repr__(self) -> str:
        return f"<PipeTransport {self._reader!r} {self._writer!r}>"

    def is_closing(self) -> bool:
        """See `asyncio.BaseTransport.is_closing`."""
        return self._writer.is_closing()

    def set_protocol(self, protocol: Any) -> None:
        """See `asyncio.BaseTransport.set_protocol`."""
        self._reader.get_protocol().target = protocol  # type: ignore[attr-defined]  # our own _Half
        self._writer.get_protocol().target = protocol  # type: ignore[attr-defined]

    def pause_reading(self) -> None:
        """See `asyncio.ReadTransport.pause_reading`."""
        self._reader.pause_reading()

    def resume_reading(self) -> None:
        """See `asyncio.ReadTransport.resume_reading`."""
        self._reader.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """See `asyncio.WriteTransport.set_write_buffer_limits`."""
        self._writer.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """See `asyncio.WriteTransport.get_write_buffer_size`."""
        return self._writer.get_write_buffer_size()

    def write(self, data: Any) -> None:
        """See `asyncio.WriteTransport.write`."""
        self._writer.write(data)

    def close(self) -> None:
        """See `asyncio.BaseTransport.close`."""
        self._reader.close()
        self._writer.close()

    def abort(self) -> None:
        """See `asyncio.WriteTransport.abort`."""
        self._reader.close()
        self._writer.abort()


class _Half(asyncio.Protocol):
    """Hears one pipe and passes on what the connection must know. The connection is lost when its writing end is."""

    def __init__(self, on_open: Callable[[Any], None] | None = None) -> None:
        self.target: Any = None
        self._on_open = on_open
        self._writes = on_open is None

    def connection_made(self, transport: Any) -> None:
        if self._on_open is not None:
            self._on_open(transport)  # at once: bytes may be there before whoever opens the pipe runs again

    def data_received(self, data: bytes) -> None:
        self.target.data_received(data)

    def eof_received(self) -> bool:
        self.target.eof_received()
        return False

    def pause_writing(self) -> None:
        self.target.pause_writing()

    def resume_writing(self) -> None:
        self.target.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._writes and self.target is not None:
            self.target.connection_lost(exc)


async def connect_stdio(factory: Callable[[], asyncio.Protocol]) -> Any:
    """Take this process's standard input and output for a connection.

    Descriptors 0 and 1 are then an empty input and the standard error, so that a handler's `print` or `input` cannot
    break into the protocol.
    """
    loop = asyncio.get_running_loop()
    one_socket = stat.S_ISSOCK(os.fstat(0).st_mode) and os.path.sameopenfile(0, 1)  # noqa: ASYNC240  # no disk is asked
    reading, writing = os.fdopen(os.dup(0), "rb", 0), os.fdopen(os.dup(1), "wb", 0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    sys.stdout.flush()
    os.dup2(2, 1)
    if one_socket:  # as `spawn` gives it; a writing pipe of the stdlib loop takes bytes that arrive for the peer's end
        with reading, writing:
            sock = socket.socket(fileno=os.dup(reading.fileno()))
        return (await loop.connect_accepted_socket(factory, sock))[0]
    writer, _ = await loop.connect_write_pipe(_Half, writing)
    opened: list[PipeTransport] = []

    def open_both(reader: Any) -> None:
        transport = PipeTransport(reader, writer)
        opened.append(transport)
        protocol = factory()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)

    await loop.connect_read_pipe(lambda: _Half(open_both), reading)
    return opened[0]


CHILD_PATIENCE = 5.0
"""Seconds that a child gets to end once its connection is closed."""


def reap(child: subprocess.Popen[bytes]) -> None:
    """Wait for a child whose connection is closed; end it when it does not end by itself."""
    try:
        child.wait(CHILD_PATIENCE)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
