"""`rpcfast demo` as a process: it shows a row for each way to call, and leaves no server behind."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import ENVIRONMENT

COMMAND = [sys.executable, "-m", "rpcfast", "demo"]
ROW = re.compile(r"^ ([\w ,-]+?)  +(\w+) +(\d+) +[\d.]+ [mµ]s +[\d.]+ [mµ]s +([\d,]+) ", re.MULTILINE)


def children(parent: int) -> set[Path]:
    """The processes that a process started, as their folders in /proc."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            _, ppid = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:  # it ended meanwhile
            continue
        if int(ppid) == parent:
            found.add(entry)
    return found


def test_every_way_is_called_and_shown() -> None:
    """Exit code 0, nothing on the standard error, a row for each way with its rate."""
    done = subprocess.run(COMMAND, capture_output=True, text=True, env=ENVIRONMENT, timeout=20, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    rows = ROW.findall(done.stdout)
    assert [row[:3] for row in rows] == [
        ("native, tcp", "Client", "1"),
        ("native, unix", "Client", "1"),
        ("native, pipes", "Client", "1"),
        ("JSON-RPC, tcp", "socket", "1"),
        ("native, tcp", "AsyncClient", "256"),
        ("native, in process", "AsyncClient", "256"),
        ("JSON-RPC, tcp", "socket", "256"),
    ]
    assert all(int(row[3].replace(",", "")) > 100 for row in rows)
    assert "every answer checked" in done.stdout


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_demo_leaves_no_server(number: int, code: int) -> None:
    """A signal while it measures ends it without a traceback, and its servers with it."""
    with subprocess.Popen(COMMAND, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT) as demo:
        assert demo.stdout.readline() == "\n"
        while len(servers := children(demo.pid)) < 2:
            os.sched_yield()
        demo.send_signal(number)
        _, errors = demo.communicate(timeout=10)
    assert (demo.returncode, errors) == (code, "")
    assert not any(server.exists() for server in servers)
