"""The command `rpcfast`; floor 7: turns what was typed into calls of the library. Nothing of the library imports it.

Typer and rich are imported here and nowhere else, and only when the command runs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command, with the process's own arguments by default, and exit.

    Exit codes: 0 done; 1 the remote call failed; 2 wrong usage; 3 no connection; 130 interrupted.
    """
    try:
        from rpcfast.cli.app import run

        code = run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:  # whoever read our output has seen enough, such as `head`
        sys.stdout = sys.__stdout__ = None  # type: ignore[misc]  # else the interpreter flushes it once more
        code = 1
    sys.exit(code)
