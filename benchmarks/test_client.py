"""Clients as users have them: `Client` one call after the other, `AsyncClient` with 256 calls at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.conftest import CallClock, cases
from benchmarks.rows import Contestant, Row


@pytest.mark.benchmark(timer=CallClock())
@cases("client-sequential", "async-client-256")
def test_client(rpc_bench: Callable[[Row, Contestant], None], row: Row, contestant: Contestant) -> None:
    """Every call is answered, and rightly; the time shown is the median latency, or that between two answers."""
    rpc_bench(row, contestant)
