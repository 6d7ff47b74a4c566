"""Tests mirror the package: every source file has a test file of its own.

`rpcfast/x.py` is tested by `tests/test_x.py`, or by several `tests/test_x_*.py`; `rpcfast/wire/x.py` by the same names
under `tests/wire/`. `__init__` and `__main__` hold nothing to test on its own.
"""

from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
WITHOUT_TESTS = {"__init__.py", "__main__.py"}


def unpaired(sources: Iterable[Path], tests: Iterable[Path]) -> list[str]:
    """Name the sources without a test file; both sides as paths relative to their own root."""
    sources = {source.with_suffix("") for source in sources if source.name not in WITHOUT_TESTS}
    covered = set()
    for test in tests:
        subject = test.with_name(test.stem.removeprefix("test_"))
        near = [s for s in sources if s.parent == subject.parent]
        partners = [s for s in near if subject == s or subject.name.startswith(f"{s.name}_")]
        # tests/test_call_table.py speaks for call_table.py when there is one, and for call.py only when there is not.
        covered.update(sorted(partners, key=lambda source: len(source.name))[-1:])
    return sorted(str(source.with_suffix(".py")) for source in sources - covered)


def below(root: Path, pattern: str) -> list[Path]:
    """List the files under `root` that match, relative to it."""
    return [path.relative_to(root) for path in root.rglob(pattern)]


def test_every_source_file_has_its_own_test_file() -> None:
    """No file of the package lacks its partner."""
    sources = below(ROOT / "rpcfast", "*.py")
    assert Path("__init__.py") in sources
    assert unpaired(sources, below(ROOT / "tests", "test_*.py")) == []


def test_a_missing_partner_is_named() -> None:
    """A partner counts only in the same folder, and only for the nearest name."""
    sources = [Path(name) for name in ("__init__.py", "call.py", "call_table.py", "wire/native.py", "server.py")]
    tests = [Path(name) for name in ("test_call_table.py", "test_native.py", "test_server_limits.py")]
    assert unpaired(sources, tests) == ["call.py", "wire/native.py"]
