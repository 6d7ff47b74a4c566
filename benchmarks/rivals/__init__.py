"""The rivals, one file each, all with the same few names: those of `Rival`.

A rival's server is a process of its own (`command`); its driver runs in another (`benchmarks.drive`). A rival is set up
as its own documentation recommends for production, and `SETTINGS` says how.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Protocol, cast

from benchmarks.load import Figures, Load


class Rival(Protocol):
    """What every file of this folder offers, as module-level names."""

    NAME: str  # as tables show it
    SETTINGS: str  # how server and client are set up, in one line

    def missing(self) -> str | None:
        """Return why this rival cannot run here, or None when it can."""
        ...

    def versions(self) -> Mapping[str, str]:
        """Return the version of everything whose speed is measured."""
        ...

    def command(self, port: int) -> Sequence[str] | None:
        """Return the command that serves on 127.0.0.1:`port` until it is killed, or None when no server is needed."""
        ...

    def drive(self, load: Load) -> Figures:
        """Warm up, then make the calls that `load` asks for, and check the answers."""
        ...


def find(name: str) -> Rival:
    """Import the rival that lies in `<name>.py`; raises ModuleNotFoundError when there is none."""
    return cast("Rival", importlib.import_module(f"benchmarks.rivals.{name}"))


def missing_packages(*names: str) -> str | None:
    """Return which of these distributions is not installed, as a sentence, or None."""
    absent = [name for name in names if not _version(name)]
    return f"not installed: {', '.join(absent)}" if absent else None


def package_versions(*names: str) -> dict[str, str]:
    """Return the installed versions of distributions."""
    return {name: _version(name) or "not installed" for name in names}


def module_command(name: str, port: int) -> list[str]:
    """Return the command that runs a rival's own file as a server."""
    return [sys.executable, "-m", f"benchmarks.rivals.{name}", str(port)]


def service(name: str) -> Path:
    """Return the file of one of rpcfast's services under benchmarks/services."""
    return Path(__file__).parents[1] / "services" / f"{name}.py"


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
