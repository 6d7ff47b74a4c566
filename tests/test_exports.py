"""The public face of `rpcfast`: its names exist and are documented, and importing them is cheap.

Knows no list of names: which ones there are is said by `rpcfast.__all__` alone.
"""

import inspect
import subprocess
import sys

import pytest

import rpcfast

# Each costs more to import than all of rpcfast; who uses one has imported it, or asked for the part that needs it.
HEAVY = {"grpc", "numpy", "opentelemetry", "pydantic", "rich", "typer"}
ONLY_IMPORT = "import rpcfast"
EVERY_NAME = "import rpcfast; [getattr(rpcfast, name) for name in rpcfast.__all__]"


@pytest.mark.parametrize("name", rpcfast.__all__)
def test_a_public_name_resolves_and_is_documented(name: str) -> None:
    """Each name of `__all__` exists; a class or function among them has a docstring of its own."""
    public = getattr(rpcfast, name)
    if inspect.isclass(public) or inspect.isroutine(public):
        assert (public.__doc__ or "").strip()


def test_public_names_are_unique_and_found_by_dir() -> None:
    """`__all__` names nothing twice, and `dir(rpcfast)` shows all of it, also where a name is loaded late."""
    assert len(rpcfast.__all__) == len(set(rpcfast.__all__))
    assert set(rpcfast.__all__) <= set(dir(rpcfast))


@pytest.mark.parametrize("statement", [ONLY_IMPORT, EVERY_NAME])
def test_importing_loads_nothing_heavy(statement: str) -> None:
    """Neither `import rpcfast` nor the use of its public names loads a library that most services never use."""
    code = f"{statement}; import sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "rpcfast" in loaded
    assert HEAVY.isdisjoint(loaded)
