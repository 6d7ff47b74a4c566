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
    """A reading and a writing pipe as one transport. The pipes' own protocols set them when they are connected."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__({"peername": "stdio"})
        self._protocol: Any = protocol
        self._reader: Any = None
        self._writer: Any = None

    def __repr__(self) -> str:
        return f"<PipeTransport {self._reader!r} {self._writer!r}>"

    def is_closing(self) -> bool:
        """See `asyncio.BaseTransport.is_closing`."""
        closing: bool = self._writer.is_closing()
        return closing

    def set_protocol(self, protocol: Any) -> None:
        """See `asyncio.BaseTransport.set_protocol`."""
        self._protocol = protocol

    def get_protocol(self) -> Any:
        """See `asyncio.BaseTransport.get_protocol`."""
        return self._protocol

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
        size: int = self._writer.get_write_buffer_size()
        return size

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


class _Reader(asyncio.Protocol):
    """Hears the reading pipe. The connection is made before the first byte can come."""

    def __init__(self, pipes: PipeTransport) -> None:
        self._pipes = pipes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._pipes._reader = transport  # noqa: SLF001  # two parts of one thing
        self._pipes.get_protocol().connection_made(self._pipes)

    def data_received(self, data: bytes) -> None:
        self._pipes.get_protocol().data_received(data)

    def eof_received(self) -> bool:
        self._pipes.get_protocol().eof_received()
        return False


class _Writer(asyncio.BaseProtocol):
    """Hears the writing pipe. The connection is lost when this one is."""

    def __init__(self, pipes: PipeTransport) -> None:
        self._pipes = pipes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._pipes._writer = transport  # noqa: SLF001

    def pause_writing(self) -> None:
        self._pipes.get_protocol().pause_writing()

    def resume_writing(self) -> None:
        self._pipes.get_protocol().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._pipes.get_protocol().connection_lost(exc)


async def connect_stdio(factory: Callable[[], asyncio.Protocol]) -> asyncio.Transport:
    """Take this process's standard input and output for a connection: two pipes, or one socket as `spawn` gives.

    Descriptors 0 and 1 are then an empty input and the standard error, so that a handler's `print` or `input` cannot
    break into the protocol.
    """
    loop = asyncio.get_running_loop()
    one_socket = _is_one_socket(os.fstat(0), os.fstat(1))
    incoming, outgoing = os.dup(0), os.dup(1)
    _give_away()
    if one_socket:
        # As two pipes it would close itself: asyncio takes bytes that arrive at a writing pipe for the reader's end.
        os.close(outgoing)
        sock = socket.socket(fileno=incoming)
        transport, _ = await loop.connect_accepted_socket(factory, sock)
        return transport
    pipes = PipeTransport(factory())
    await loop.connect_write_pipe(lambda: _Writer(pipes), os.fdopen(outgoing, "wb", 0))
    await loop.connect_read_pipe(lambda: _Reader(pipes), os.fdopen(incoming, "rb", 0))
    return pipes


def _is_one_socket(one: os.stat_result, other: os.stat_result) -> bool:
    return stat.S_ISSOCK(one.st_mode) and (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)


def _give_away() -> None:
    """Leave an empty standard input, and the standard error as the standard output."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    sys.stdout.flush()
    os.dup2(2, 1)


CHILD_PATIENCE = 5.0
"""Seconds that a child gets to end once its connection is closed."""


def reap(child: subprocess.Popen[bytes]) -> None:
    """Wait for a child whose connection is closed; end it when it does not end by itself."""
    try:
        child.wait(CHILD_PATIENCE)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
