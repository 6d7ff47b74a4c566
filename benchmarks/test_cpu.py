"""rpcfast's own CPU per call, in process: no socket, no kernel, 16 calls a read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.conftest import CallClock, cases
from benchmarks.rows import Contestant, Row


@pytest.mark.benchmark(timer=CallClock())
@cases("cpu-plain", "cpu-async")
def test_cpu(rpc_bench: Callable[[Row, Contestant], None], row: Row, contestant: Contestant) -> None:
    """Every call is answered; the time shown is the CPU time of one."""
    rpc_bench(row, contestant)
