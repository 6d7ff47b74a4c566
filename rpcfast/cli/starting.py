"""Starts `rpcfast serve` as child processes and learns where they listen, from the line that they announce."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Final

from rpcfast.cli.failure import REMOTE, Failure

__all__ = ["start"]

PATIENCE: Final = 5.0
"""Seconds that a child gets to end by itself."""


def start(stack: ExitStack, commands: Sequence[Sequence[str]]) -> list[str]:
    """Start one server for each list of arguments of `rpcfast serve`; give their addresses when all of them listen.

    They end when `stack` closes. Raises `Failure` with what a server wrote when it ends at once.
    """
    # What is set in the environment is meant for the user's own servers.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RPCFAST_")}
    servers: list[subprocess.Popen[str]] = []

    def launch(arguments: Sequence[str]) -> None:
        command = [sys.executable, "-m", "rpcfast", "serve", *arguments, "--log-level", "error"]
        server = subprocess.Popen(  # noqa: S603  # our own command
            command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
        )
        stack.callback(_stop, server)
        servers.append(server)

    # In a thread, where no signal is raised: one that came between start and callback would leave a server behind.
    with ThreadPoolExecutor(1) as thread:
        for arguments in commands:
            thread.submit(launch, arguments).result()
    return [_address(server) for server in servers]


def _address(server: subprocess.Popen[str]) -> str:
    said: list[str] = []
    for line in server.stderr or ():
        if found := re.search(r"(?:tcp|unix)://\S+", line):
            return found[0].rstrip(",")
        said.append(line)
    raise Failure(f"error: the server did not start:\n{''.join(said).rstrip()}", REMOTE)


def _stop(server: subprocess.Popen[str]) -> None:
    server.terminate()
    try:
        server.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
    if server.stderr is not None:
        server.stderr.close()
