"""An epoll echo in C (echo.c): what the machine's kernel allows any server, and the ceiling of the load generator."""

from __future__ import annotations

import subprocess
from pathlib import Path

from benchmarks import load_c
from benchmarks.load import Figures, Load, replay
from benchmarks.rivals import _native

NAME = "C epoll echo"
SETTINGS = "cc -O3, one epoll loop, recv and send; the bytes of the native call"


def missing() -> str | None:
    """Return why this rival cannot run here, or None."""
    return None if load_c.available() else "no C compiler (cc)"


def versions() -> dict[str, str]:
    """Return the version of everything whose speed is measured."""
    told = subprocess.run(["cc", "--version"], check=True, capture_output=True, text=True)
    return {"cc": told.stdout.splitlines()[0]}


def command(port: int) -> list[str]:
    """Return the server's command, compiled when it was not before."""
    return [str(load_c.build(Path(__file__).with_name("echo.c"))), str(port)]


def drive(load: Load) -> Figures:
    """Replay the native call's bytes."""
    return replay(load, _native.echo_wire())
