"""Start-up: what `import rpcfast` costs a fresh interpreter, beside `import asyncio`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.conftest import CallClock, cases
from benchmarks.rows import Contestant, Row


@pytest.mark.benchmark(timer=CallClock())
@cases("import")
def test_import(rpc_bench: Callable[[Row, Contestant], None], row: Row, contestant: Contestant) -> None:
    """The module imports; the time shown is the median import."""
    rpc_bench(row, contestant)
