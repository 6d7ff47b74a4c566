"""What a user types to say where a server is; floor 1: text to a `Target`, nothing is opened."""

from __future__ import annotations

import shlex
from typing import Final
from urllib.parse import urlsplit

import msgspec

__all__ = ["Target", "parse_target"]

DEFAULT_PORT: Final = 8000


class Target(msgspec.Struct, frozen=True):
    """Where a server is: `scheme` is tcp (with `host` and `port`), unix (with `path`) or exec (with `command`)."""

    scheme: str
    host: str = ""
    port: int = 0
    path: str = ""
    command: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.scheme == "tcp":
            host = f"[{self.host}]" if ":" in self.host else self.host
            return f"tcp://{host}:{self.port}"
        return f"unix://{self.path}" if self.scheme == "unix" else f"exec:{shlex.join(self.command)}"


def parse_target(text: str) -> Target:
    """Read `tcp://host:port` (the default scheme), `unix:///path` or `exec:COMMAND`.

    Raises `ValueError` that says what was expected.
    """
    if text.startswith("exec:"):
        command = tuple(shlex.split(text.removeprefix("exec:")))
        if not command:
            raise ValueError("exec: needs a command: exec:rpcfast serve app.py --stdio")
        return Target("exec", command=command)
    if text.startswith("unix:"):
        path = text.removeprefix("unix:").removeprefix("//")  # as it is: a path may hold ? and #
        if not path.startswith("/"):
            raise ValueError(f"{text!r} needs a path: unix:///run/app.sock")
        return Target("unix", path=path)
    if "://" not in text:
        text = f"tcp://{text}"
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}") from None
    if parts.scheme != "tcp":
        raise ValueError(f"{text!r}: the scheme {parts.scheme!r} is unknown; there are tcp://, unix:// and exec:")
    return Target("tcp", host=_host(text, parts.hostname), port=_port(text))


def _host(text: str, host: str | None) -> str:
    parts = urlsplit(text)
    if not host:
        raise ValueError(f"{text!r} needs a host: tcp://127.0.0.1:{DEFAULT_PORT}")
    if parts.path not in ("", "/") or parts.query or parts.fragment or parts.username is not None:
        raise ValueError(f"{text!r}: nothing may follow the port: tcp://{host}:{DEFAULT_PORT}")
    return host


def _port(text: str) -> int:
    try:
        port = urlsplit(text).port
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}") from None
    if port == 0:
        raise ValueError(f"{text!r}: nothing listens on port 0")
    return DEFAULT_PORT if port is None else port
