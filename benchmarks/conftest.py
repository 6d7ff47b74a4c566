"""`rpc_bench`: hands a row's figures, measured in fresh processes, to pytest-benchmark as seconds per call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks import method, rivals, rows
from benchmarks.report import section
from benchmarks.rows import Contestant, Row

ROUNDS, SECONDS = 5, 0.2


class CallClock:
    """A clock that moves only by the rounds handed over, so that pytest-benchmark's time is seconds per call."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Return the seconds so far."""
        return self.now


@functools.cache
def _measured(name: str) -> method.Result:
    """Measure a row once, all its contestants in alternating rounds; each of its tests then hands over its part."""
    return method.measure(rows.find(name), rounds=ROUNDS, seconds=SECONDS)


def cases(*names: str) -> pytest.MarkDecorator:
    """Parametrize a test with every contestant of these rows."""
    found = [(row, one) for row in map(rows.find, names) for one in row.contestants]
    return pytest.mark.parametrize(("row", "contestant"), found, ids=[f"{row.name}-{one.key}" for row, one in found])


@pytest.fixture
def rpc_bench(benchmark: Any) -> Callable[[Row, Contestant], None]:
    """Give a function that reports one contestant of one row; it fails on a wrong answer, never on a slow one."""

    def report(row: Row, contestant: Contestant) -> None:
        result = _measured(row.name)
        benchmark.group, benchmark.name = row.name, contestant.key
        if contestant.key in result.missing:
            pytest.skip(result.missing[contestant.key])
        values = [value / 1e6 if row.metric != "rate" else 1 / value for value in result.values(contestant)]
        rounds = iter(values)
        clock: CallClock = benchmark._timer
        if benchmark.enabled:
            benchmark.pedantic(
                lambda: setattr(clock, "now", clock.now + next(rounds)), rounds=len(values), iterations=1
            )
        figures = result.rounds[contestant.key]
        benchmark.extra_info |= {
            "settings": rivals.find(contestant.rival).SETTINGS,
            "table": section(result),
            "rounds": [vars(one) for one in figures],
        }
        assert not sum(one.wrong for one in figures)

    return report
