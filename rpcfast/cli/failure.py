"""How a command ends when it cannot do what was asked: a text for a person, an exit code, no traceback."""

from __future__ import annotations

from typing import Final

__all__ = ["NO_CONNECTION", "REMOTE", "USAGE", "Failure"]

REMOTE: Final = 1
"""The remote call failed, or the served code did."""
USAGE: Final = 2
"""What was typed cannot be done."""
NO_CONNECTION: Final = 3
"""Nobody answers at the target."""


class Failure(Exception):
    """Ends the command; `text` goes to the standard error as it is."""

    def __init__(self, text: str, code: int = USAGE) -> None:
        super().__init__(text)
        self.text = text
        self.code = code
