"""What is written about results: the tables of docs/benchmarks.md and the raw JSON. Measures nothing."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks import rivals
from benchmarks.method import Result, Spread
from benchmarks.rows import Bar, Contestant, Metric

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "docs" / "benchmarks.md"
RESULTS = ROOT / "benchmarks" / "results"
_UNITS: dict[Metric, str] = {"rate": "calls/s", "p50": "µs", "cpu": "µs of CPU per call"}

_COLUMNS = "p50 µs | p99 µs | server CPU µs | server busy | wrong | driven by"
_AGREED = 0.8  # the share of rounds that must agree who is faster, or it is a tie
_MANY = 1000  # from here on, figures are whole numbers with separators

_HEAD = """\
# Benchmarks

Written by `python -m benchmarks report`; do not edit. Absolute figures belong to this machine at that hour: what
carries over to another one are the ratios.

- Server and load generator are fresh processes, each pinned to a core of its own where the system allows it.
- Contestants take turns (A B A B ...), {rounds} rounds of {seconds} s after a warm-up; medians, with the lowest and
  the highest round in brackets. Ratios are taken round by round;
  where fewer than four rounds in five agree on who is faster, that is called a tie.
- The servers' rows are driven by prepared bytes (benchmarks/load.c, or load_python.py where there is no C compiler),
  and the C generator compares every answer. The row `generator` shows what it can do. gRPC's servers are driven by
  gRPC's own client, the clients' rows by the clients themselves.
- "server CPU" is the server process's own CPU time per call, from /proc, in ticks of 10 ms; "server busy" is its
  share of its core: near 100 %, the server is the limit and not what drives it.

| machine | |
|---|---|
{machine}
"""


def save(result: Result) -> Path:
    """Write a row's raw figures, all rounds, as benchmarks/results/ROW.json; returns the file."""
    RESULTS.mkdir(exist_ok=True)
    target = RESULTS / f"{result.row.name}.json"
    target.write_text(json.dumps(dataclasses.asdict(result), indent=1, ensure_ascii=False) + "\n", "utf-8")
    return target


def write(results: Sequence[Result], rounds: int, seconds: float) -> Path:
    """Write docs/benchmarks.md; returns the file."""
    facts = results[0].machine | {"finished": results[-1].when}
    head = _HEAD.format(rounds=rounds, seconds=seconds, machine="\n".join(f"| {key} | {facts[key]} |" for key in facts))
    DOCUMENT.parent.mkdir(exist_ok=True)
    parts = [head, *(section(result) for result in results), _contestants(results)]
    DOCUMENT.write_text("\n".join(parts), "utf-8")
    return DOCUMENT


def section(result: Result) -> str:
    """Return a row as Markdown: title, the command that reruns it, the bars, the table."""
    row = result.row
    first = _name(row.contestants[0])
    lines = [f"## {row.title}", "", f"`python -m benchmarks row {row.name}`", ""]
    lines += [f"- {_verdict(result, bar)}" for bar in row.bars]
    lines += [""] * bool(row.bars)
    lines += [
        f"| | {_UNITS[row.metric]} | {first} over this | {_COLUMNS} |",
        "|---|---|---|---|---|---|---|---|---|",
        *(_line(result, one) for one in row.contestants),
        "",
    ]
    return "\n".join(lines)


def _line(result: Result, contestant: Contestant) -> str:
    if contestant.key in result.missing:
        return f"| {_name(contestant)} | not measured: {result.missing[contestant.key]} | | | | | | | |"
    rounds = result.rounds[contestant.key]
    p50, p99 = (Spread.of([getattr(one, name) for one in rounds]).median for name in ("p50", "p99"))
    cpu = [one.cpu for one in rounds if one.cpu is not None]
    cells = [
        _name(contestant),
        _spread(Spread.of(result.values(contestant))),
        "" if contestant == result.row.contestants[0] else _ratio(result.paired(contestant)),
        _figure(p50),
        _figure(p99),
        _figure(Spread.of(cpu).median) if cpu else "",
        f"{Spread.of([(one.cpu or 0) * one.rate / 1e4 for one in rounds]).median:.0f} %" if cpu else "",
        str(sum(one.wrong for one in rounds)),
        rounds[0].driver,
    ]
    return f"| {' | '.join(cells)} |"


def _verdict(result: Result, bar: Bar) -> str:
    more = "at least" if result.row.metric == "rate" else "at most"
    unit = _UNITS[result.row.metric]
    asked = {
        "ratio": f"{more} {bar.value:g} x {_name(bar.against)}" if bar.against else "",
        "difference": f"{more} {_figure(bar.value)} {unit} more than {_name(bar.against)}" if bar.against else "",
        "value": f"{more} {_figure(bar.value)} {unit}",
    }[bar.how]
    found = result.reached(bar)
    if found is None:
        return f"bar: {asked}: not measured"
    value, enough = found
    return f"bar: {asked}: **{'reached' if enough else 'missed'}** ({_figure(value)})"


def _contestants(results: Iterable[Result]) -> str:
    lines = ["## Contestants and their settings", "", "| | settings | versions |", "|---|---|---|"]
    versions = {name: told for result in results for name, told in result.versions.items()}
    for name, told in sorted(versions.items()):
        rival = rivals.find(name)
        lines.append(f"| {rival.NAME} | {rival.SETTINGS} | {', '.join(f'{key} {told[key]}' for key in told)} |")
    return "\n".join([*lines, ""])


def _name(contestant: Contestant) -> str:
    name = rivals.find(contestant.rival).NAME
    procedure = "" if contestant.procedure == "sum" else f" {contestant.procedure}"
    engine = "" if contestant.engine == "auto" else f", {contestant.engine} generator"
    return f"{name}{procedure}{engine}"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= _MANY else f"{value:.3g}"


def _spread(spread: Spread) -> str:
    return f"{_figure(spread.median)} [{_figure(spread.low)} .. {_figure(spread.high)}]"


def _ratio(spread: Spread | None) -> str:
    if spread is None:
        return ""
    return f"**{_figure(spread.median)}** [{_figure(spread.low)} .. {_figure(spread.high)}]" + (
        " tie" if 1 - _AGREED < spread.above_one < _AGREED else ""
    )
