"""`rpcfast demo`: serves the quick start in child processes, calls it over every protocol, and shows how fast that is.

Every answer is checked. What it starts it also stops, also when it is interrupted.
"""

from __future__ import annotations

import os
import platform
import shlex
import signal
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple

from rich import box
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from rpcfast.cli.failure import REMOTE, Failure
from rpcfast.cli.loading import load_server
from rpcfast.cli.measuring import IN_FLIGHT, Figures, async_client, client, json_pipelined, json_sequential
from rpcfast.cli.starting import start
from rpcfast.errors import RPCError

__all__ = ["demo"]

TARGET: Final = "rpcfast.quickstart"
OTHERS: Final = 74
"""Columns of the table beside the bar."""


class Case(NamedTuple):
    """One row: the way, the caller at its end, how many calls are in flight, and what measures it."""

    way: str
    caller: str
    in_flight: int
    measure: Callable[[], Figures]


def demo() -> None:
    """Serve, call, show; raises `Failure` when an answer is wrong."""
    console = Console(highlight=False)
    console.print(f"\nServing [bold]sum(a: int, b: int) -> int[/]  [dim]{_machine()}[/]")
    with ExitStack() as stack:
        stack.enter_context(_ends_on_sigterm())
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        addresses = start(stack, [[TARGET, "--port", "0"], [TARGET, "--uds", str(Path(folder) / "demo.sock")]])
        done: list[Figures] = []
        cases = _cases(*addresses)
        # No refreshing thread: it would take turns with what is measured.
        with Live(_table(cases, done, console.width), console=console, auto_refresh=False) as live:
            for case in cases:
                done.append(_measured(case))
                live.update(_table(cases, done, console.width), refresh=True)
        if not console.is_terminal:
            console.print()  # there, Live prints the table alone
    calls = sum(len(figures.latencies) for figures in done)
    console.print(f"[green]{calls:,} calls, every answer checked.[/] The servers are stopped.\n")
    console.print(NEXT)


NEXT: Final = """Go on by hand:
  [bold cyan]rpcfast serve rpcfast.quickstart[/]
  [bold cyan]rpcfast inspect tcp://127.0.0.1:8000[/]
  [bold cyan]rpcfast call tcp://127.0.0.1:8000 sum a=2 b=3[/]"""


def _cases(tcp: str, unix: str) -> list[Case]:
    pipes = "exec:" + shlex.join([sys.executable, "-m", "rpcfast", "serve", TARGET, "--stdio"])
    return [
        Case("native, tcp", "Client", 1, lambda: client(tcp)),
        Case("native, unix", "Client", 1, lambda: client(unix)),
        Case("native, pipes", "Client", 1, lambda: client(pipes)),
        Case("JSON-RPC, tcp", "socket", 1, lambda: json_sequential(tcp)),
        Case("native, tcp", "AsyncClient", IN_FLIGHT, lambda: async_client(tcp)),
        Case("native, in process", "AsyncClient", IN_FLIGHT, lambda: async_client(load_server(TARGET))),
        Case("JSON-RPC, tcp", "socket", IN_FLIGHT, lambda: json_pipelined(tcp)),
    ]


def _measured(case: Case) -> Figures:
    try:
        return case.measure()
    except RPCError as error:
        raise Failure(f"error: {case.way}, {case.caller}: {error.code} {error}", REMOTE) from None


def _table(cases: list[Case], done: list[Figures], width: int) -> Table:
    """The rows that are measured, the one that is being measured, and those to come; 80 columns at least."""
    bar = max(7, min(24, width - OTHERS))
    table = Table(box=box.SIMPLE, header_style="bold", padding=(0, 1, 0, 0))
    for name in ("Way", "Caller"):
        table.add_column(name, no_wrap=True)
    for name in ("At once", "p50", "p99", "Calls/s"):
        table.add_column(name, justify="right", no_wrap=True, min_width=7)
    table.add_column("", width=bar)
    best = max((figures.rate for figures in done), default=1.0)
    for number, case in enumerate(cases):
        if number and case.in_flight != cases[number - 1].in_flight:
            table.add_section()
        begin = (case.way, case.caller, str(case.in_flight))
        if number < len(done):
            table.add_row(
                *begin,
                *_cells(done[number]),
                ProgressBar(
                    best, done[number].rate, bar, style="bright_black", complete_style="cyan", finished_style="green"
                ),
            )
        else:
            table.add_row(*begin, "", "", "..." if number == len(done) else "", style="dim")
    return table


def _cells(figures: Figures) -> tuple[str, str, str]:
    return _time(figures.quantile(0.5)), _time(figures.quantile(0.99)), f"{figures.rate:,.0f}"


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} µs" if seconds < 1e-3 else f"{seconds * 1e3:.1f} ms"  # noqa: PLR2004  # a millisecond


def _machine() -> str:
    return f"{platform.python_implementation()} {platform.python_version()}, {os.cpu_count()} cores"


@contextmanager
def _ends_on_sigterm() -> Generator[None]:
    """SIGTERM ends the demo as Ctrl-C does: with what it started stopped."""

    def end(number: int, _: FrameType | None) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
