"""What rpcfast's rows share: how its server is started, and whether it is here at all."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

from benchmarks.load import HOST
from benchmarks.rivals import missing_packages, package_versions, service

PACKAGES = ("rpcfast-framework", "msgspec", "orjson", "uvloop")
SERVER = "rpcfast serve benchmarks/services/quick.py, its defaults"


def missing() -> str | None:
    """Return why rpcfast cannot run here, or None."""
    if importlib.util.find_spec("rpcfast") is None or not _program():
        return "rpcfast is not installed in this environment"
    return missing_packages(*PACKAGES)


def versions() -> dict[str, str]:
    """Return the version of everything whose speed is measured."""
    return package_versions(*PACKAGES)


def command(port: int) -> list[str]:
    """Return the server's command."""
    return [_program() or "rpcfast", "serve", str(service("quick")), "--host", HOST, "--port", str(port)]


def _program() -> str | None:
    return shutil.which("rpcfast", path=str(Path(sys.executable).parent))
