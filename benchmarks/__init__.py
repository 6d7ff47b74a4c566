"""Benchmarks of rpcfast and its rivals; not part of the wheel.

`python -m benchmarks report` measures every row and writes docs/benchmarks.md, `python -m benchmarks row NAME`
measures one, `pytest benchmarks --benchmark-only` does it quickly under pytest-benchmark.
"""
