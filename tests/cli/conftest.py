"""The command as real processes: one that ends, and servers that are stopped when their test ends."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

QUICKSTART = str(Path(__file__).parents[2] / "examples" / "quickstart.py")
SERVICE = str(Path(__file__).parent / "service.py")
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("RPCFAST_")}


class Running(NamedTuple):
    """A server's process, the line that it announced itself with, and the address in it."""

    process: subprocess.Popen[str]
    line: str
    address: str


def start(stack: ExitStack, *arguments: str, **options: object) -> Running:
    """Start `rpcfast serve` and wait for its announcement."""
    process = subprocess.Popen(
        [sys.executable, "-m", "rpcfast", "serve", *arguments],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        **{"env": ENVIRONMENT, **options},
    )
    stack.callback(stop, process)
    said = []
    for line in process.stderr:
        said.append(line)
        if found := re.search(r"(tcp|unix)://[^\s,\"]+", line):
            return Running(process, line, found[0])
    raise AssertionError(f"the server ended with {process.wait()} and said: {said}")


def stop(process: subprocess.Popen[str]) -> None:
    """End a server that still runs."""
    if process.poll() is None:
        process.terminate()
        process.wait(10)
    process.stderr.close()


@pytest.fixture
def serve() -> Iterator[Callable[..., Running]]:
    """Start servers for one test: `serve("file.py", "--port", "0")`."""
    with ExitStack() as stack:
        yield lambda *arguments, **options: start(stack, *arguments, **options)


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """Where the procedures of `service.py` are served, for all tests."""
    with ExitStack() as stack:
        yield start(stack, SERVICE, "--port", "0").address


@pytest.fixture(scope="session")
def command() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the command to its end: `command("call", ...)`."""

    def run(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
        defaults = {"text": True, "env": ENVIRONMENT, "timeout": 30}
        if "input" not in options:
            defaults["stdin"] = subprocess.DEVNULL
        return subprocess.run(  # noqa: PLW1510  # the caller looks at the exit code
            [sys.executable, "-m", "rpcfast", *arguments], capture_output=True, **{**defaults, **options}
        )

    return run
