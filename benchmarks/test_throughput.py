"""Servers under load: prepared bytes over 32 connections."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.conftest import CallClock, cases
from benchmarks.rows import Contestant, Row


@pytest.mark.benchmark(timer=CallClock())
@cases("generator", "native-32x16", "jsonrpc-32x16", "async-32x16", "native-32x1")
def test_throughput(rpc_bench: Callable[[Row, Contestant], None], row: Row, contestant: Contestant) -> None:
    """Every call is answered, and rightly; the time shown is that between two answers."""
    rpc_bench(row, contestant)
