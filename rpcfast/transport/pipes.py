"""A child process as a server, and a process's own standard input and output as a connection; floor 1."""

from __future__ import annotations

import asyncio
import errno
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

    def __init__(
        self, reader: asyncio.ReadTransport, writer: asyncio.WriteTransport, halves: tuple[_Half, _Half]
    ) -> None:
        super().__init__({"peername": "stdio"})
        self._reader = reader
        self._writer = writer
        self._halves = halves

    def __repr__(self) -> str:
        return f"<PipeTransport {self._reader!r} {self._writer!r}>"

    def is_closing(self) -> bool:
        """See `asyncio.BaseTransport.is_closing`."""
        return self._writer.is_closing()

    def set_protocol(self, protocol: Any) -> None:
        """See `asyncio.BaseTransport.set_protocol`."""
        for half in self._halves:
            half.target = protocol

    def get_protocol(self) -> Any:
        """See `asyncio.BaseTransport.get_protocol`."""
        return self._halves[0].target

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

    def can_write_eof(self) -> bool:
        """See `asyncio.WriteTransport.can_write_eof`: the two ends close together."""
        return False

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

    def __init__(self, *, writes: bool) -> None:
        self.target: Any = None
        self._writes = writes
        self._early: list[tuple[str, Any]] = []  # what happened before there was a connection to tell
        self._both: PipeTransport | None = None

    def begin(self, both: PipeTransport) -> None:
        """The connection is there: tell it what happened already."""
        self._both = both
        early, self._early = self._early, []
        for name, argument in early:
            getattr(self, name)(*argument)

    def data_received(self, data: bytes) -> None:
        if self._both is None:
            self._early.append(("data_received", (data,)))
        else:
            self.target.data_received(data)

    def eof_received(self) -> bool:
        if self._both is None:
            self._early.append(("eof_received", ()))
        elif not self.target.eof_received():
            self._both.close()
        return False

    def pause_writing(self) -> None:
        self.target.pause_writing()

    def resume_writing(self) -> None:
        self.target.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._both is None:
            self._early.append(("connection_lost", (exc,)))
        elif self._writes:
            self.target.connection_lost(exc)


async def connect_stdio(factory: Callable[[], asyncio.Protocol]) -> asyncio.Transport:
    """Take this process's standard input and output for a connection.

    Descriptors 0 and 1 are then an empty input and the standard error, so that a handler's `print` or `input` cannot
    break into the protocol. Raises `OSError` when one of them is closed, or is a file.
    """
    if sys.stdin is None or sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]  # closed at the start
        raise OSError(errno.EBADF, "it is closed")
    kinds = [os.fstat(0), os.fstat(1)]
    if not all(
        stat.S_ISFIFO(kind.st_mode) or stat.S_ISSOCK(kind.st_mode) or os.isatty(i) for i, kind in enumerate(kinds)
    ):
        raise OSError(errno.EINVAL, "it is a file")
    one = stat.S_ISSOCK(kinds[0].st_mode) and os.path.samestat(*kinds)
    reading, writing = _take_over()
    if one:  # as `spawn` gives: asyncio takes bytes that arrive on a writing pipe for its end
        os.close(writing)
        transport, _ = await asyncio.get_running_loop().connect_accepted_socket(factory, socket.socket(fileno=reading))
        return transport
    return await _connect_pipes(factory, os.fdopen(reading, "rb", 0), os.fdopen(writing, "wb", 0))


def _take_over() -> tuple[int, int]:
    reading, writing = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    sys.stdout.flush()
    os.dup2(2, 1)
    return reading, writing


async def _connect_pipes(factory: Callable[[], asyncio.Protocol], reading: Any, writing: Any) -> PipeTransport:
    loop = asyncio.get_running_loop()
    hears, speaks = _Half(writes=False), _Half(writes=True)
    writer, _ = await loop.connect_write_pipe(lambda: speaks, writing)
    reader, _ = await loop.connect_read_pipe(lambda: hears, reading)
    protocol = factory()
    transport = PipeTransport(reader, writer, (hears, speaks))
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    hears.begin(transport)
    speaks.begin(transport)
    return transport


CHILD_PATIENCE = 5.0
"""Seconds that a child gets to end once its connection is closed."""


def reap(child: subprocess.Popen[bytes]) -> None:
    """Wait for a child whose connection is closed; end it when it does not end by itself."""
    try:
        child.wait(CHILD_PATIENCE)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
