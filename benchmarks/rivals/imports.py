"""What `import MODULE` costs a fresh interpreter; `procedure` is the module. No server."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

from benchmarks.load import Figures, Load
from benchmarks.rivals import package_versions
from benchmarks.wire import Tally

NAME = "import"
SETTINGS = "a fresh interpreter for each import, byte code cached, timed inside"
_TIMES = 5  # fresh interpreters a round
_PROGRAM = "import time; start = time.perf_counter_ns(); import {}; print(time.perf_counter_ns() - start)"


def missing() -> str | None:
    """Return why this rival cannot run here, or None."""
    return None if importlib.util.find_spec("rpcfast") else "rpcfast is not installed in this environment"


def versions() -> dict[str, str]:
    """Return the version of everything whose speed is measured."""
    return package_versions("rpcfast-framework", "msgspec")


def command(_: int) -> None:
    """Need no server."""


def drive(load: Load) -> Figures:
    """Import a few times; the first, which may write byte code, does not count."""
    program = _PROGRAM.format(load.procedure)
    times = [int(subprocess.check_output([sys.executable, "-c", program])) for _ in range(_TIMES + 1)][1:]
    tally = Tally.of(times, 0, sum(times))
    return Figures(_TIMES, tally.nanoseconds / 1e9, tally.p50 / 1e3, tally.p99 / 1e3, 0, None, "fresh interpreter")
