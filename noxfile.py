"""Every check of the project as one command: `nox` runs the default ones, `nox -s NAME` runs one.

Sessions only install and start tools; how a tool behaves is written in pyproject.toml.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nox

ROOT = Path(__file__).parent
SUPPORTED = ("3.11", "3.12", "3.13", "3.14", "3.15")
PYPROJECT = nox.project.load_toml("pyproject.toml")


def _pyenv_folders() -> Iterator[str]:
    """Give the program folders of pyenv's interpreters that we support, the newest patch release first."""
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for supported in reversed(SUPPORTED):
        releases = [path for path in versions.glob(f"{supported}.*") if path.name.split(".")[-1].isdigit()]
        for release in sorted(releases, key=lambda path: int(path.name.split(".")[-1]), reverse=True):
            yield str(release / "bin")


def _works(python: str) -> bool:
    """Tell whether this machine can run `pythonX.Y`: a shim of pyenv may stand for nothing."""
    program = shutil.which(f"python{python}")
    return program is not None and subprocess.run([program, "-c", ""], capture_output=True, check=False).returncode == 0  # noqa: S603 - our own name


# pyenv's own folders go first: its shims answer only for the versions that the user has switched on.
os.environ["PATH"] = os.pathsep.join([*_pyenv_folders(), os.environ.get("PATH", "")])
FOUND = tuple(python for python in SUPPORTED if _works(python))
if not FOUND:
    sys.exit(f"rpcfast needs one of Python {', '.join(SUPPORTED)}; this machine has none of them.")
NEWEST = FOUND[-1]

nox.options.sessions = ["lint", "types", "tests", "docs"]
nox.options.default_venv_backend = "uv|virtualenv"  # uv makes a new environment in about a second
nox.options.download_python = "never"
nox.options.error_on_missing_interpreters = False  # a missing one is named in the report, also on CI


def _install(session: nox.Session, *groups: str) -> None:
    """Install the working tree with its extras, and the dependency groups."""
    session.install("-e", ".[all]", *nox.project.dependency_groups(PYPROJECT, *groups))


def _existing(*paths: str) -> list[str]:
    """Keep those paths that hold Python files."""
    return [path for path in paths if any((ROOT / path).rglob("*.py"))]


@nox.session(python=NEWEST)
def lint(session: nox.Session) -> None:
    """Check style and layout (ruff, all rules)."""
    session.install(*nox.project.dependency_groups(PYPROJECT, "lint"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session(python=NEWEST)
def types(session: nox.Session) -> None:
    """Check types (mypy and pyright, strict), as the oldest and the newest Python see them."""
    _install(session, "types")
    paths = _existing("rpcfast", "tests/typing", "examples")
    for python in (SUPPORTED[0], SUPPORTED[-1]):
        session.run("mypy", f"--python-version={python}", *paths)
        session.run("pyright", f"--pythonversion={python}", *paths)


@nox.session(python=SUPPORTED)
def tests(session: nox.Session) -> None:
    """Run the tests on every supported interpreter; nox names the missing ones."""
    # Editable, since pytest started in the checkout imports the checkout; session `docs` tries the built wheel.
    _install(session, "test")
    session.run("python", "-m", "pytest", "-q", *session.posargs)


@nox.session(python=NEWEST)
def docs(session: nox.Session) -> None:
    """Run the code blocks of README.md and docs/, their commands from the built wheel."""
    session.install(".[all]", *nox.project.dependency_groups(PYPROJECT, "docs"))
    session.run("python", "-m", "pytest", "-q", "-m", "docs", *session.posargs)


@nox.session(python=NEWEST)
def bench(session: nox.Session) -> None:
    """Measure: all of benchmarks/, or the files named after `--`."""
    _install(session, "bench")
    session.run("python", "-m", "pytest", "--benchmark-only", *(session.posargs or ["benchmarks"]))


@nox.session(python=NEWEST)
def fuzz(session: nox.Session) -> None:
    """Run the tests marked `fuzz` with a hundred times the examples."""
    _install(session, "fuzz")
    arguments = ["-m", "fuzz", "--hypothesis-profile=fuzz", "--timeout=3600"]
    session.run("python", "-m", "pytest", "-q", *arguments, *session.posargs)
