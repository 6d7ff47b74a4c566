"""The quick start that ships in the package, for `rpcfast demo` and `rpcfast serve rpcfast.quickstart`."""

from pathlib import Path

import rpcfast


def test_the_shipped_quick_start_is_the_example() -> None:
    """It is `examples/quickstart.py`, to the letter."""
    shipped = Path(rpcfast.__file__).parent / "quickstart.py"
    example = Path(__file__).parents[1] / "examples" / "quickstart.py"
    assert shipped.read_text() == example.read_text()
