"""The command `python -m benchmarks`: `report`, `row NAME`, `rows`. Talks to the reader; measures through `method`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.markdown import Markdown

from benchmarks import method, report, rows

_console = Console()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="rpcfast and its rivals, measured.")
    parser.add_argument("--rounds", type=int, default=5, help="alternating rounds (default 5)")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a round (default 1.0)")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("report", help="measure all rows; write docs/benchmarks.md and benchmarks/results/*.json")
    commands.add_parser("rows", help="list the rows")
    one = commands.add_parser("row", help="measure one row and show it; writes nothing")
    one.add_argument("name", choices=[row.name for row in rows.ROWS])
    options = parser.parse_args(arguments)
    if options.command == "rows":
        for row in rows.ROWS:
            _console.print(f"{row.name:20} {row.title}", highlight=False, soft_wrap=True)
    elif options.command == "row":
        (result,) = _measure([rows.find(options.name)], options.rounds, options.seconds)
        _show(result)
    else:
        results = _measure(rows.ROWS, options.rounds, options.seconds, save=True)
        _console.print(f"written: {report.write(results, options.rounds, options.seconds)}", highlight=False)
    return 0


def _measure(chosen: Sequence[rows.Row], rounds: int, seconds: float, *, save: bool = False) -> list[method.Result]:
    results: list[method.Result] = []
    with _console.status("starting servers", refresh_per_second=1) as status:
        for number, row in enumerate(chosen, start=1):
            results.append(method.measure(row, rounds=rounds, seconds=seconds, progress=status.update))
            if save:
                report.save(results[-1])
                _console.print(f"{number}/{len(chosen)} {row.name}", highlight=False)
    return results


def _show(result: method.Result) -> None:
    text = report.section(result)
    if _console.is_terminal:
        _console.print(Markdown(text))
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    sys.exit(main())
