"""What can be typed: help, version, and how wrong usage is told."""

import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version

import pytest
from typer.testing import CliRunner

from rpcfast.cli.app import app, run

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize("command", [[], ["serve"], ["call"], ["inspect"], ["demo"]])
def test_help_shows_an_example(command: list[str]) -> None:
    """Each help text shows one command that can be typed as it stands."""
    shown = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb"})
    assert shown.exit_code == 0
    assert f"rpcfast {command[0] if command else 'demo'}" in shown.stdout.partition("Usage:")[2].partition("\n")[2]


def test_every_option_of_serve_is_in_its_help() -> None:
    """What the help names is what this version supports, no more."""
    shown = CliRunner().invoke(app, ["serve", "--help"], env={"COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb"})
    words = {word for word in shown.stdout.replace(",", " ").split() if word.startswith("--")}
    assert words == {
        *("--host", "--port", "--uds", "--fd", "--stdio", "--loop", "--log-level", "--log-format"),
        *("--max-message-size", "--max-connections", "--max-in-flight", "--drain-timeout", "--help"),
    }


def test_the_version_is_that_of_the_installed_package(command: Command) -> None:
    """`python -m rpcfast` is the command."""
    done = command("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"rpcfast {version('rpcfast-framework')} (")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing"], "No such command 'nothing'; see rpcfast --help"),
        (["call"], "see rpcfast call --help"),
        (["inspect", "x", "--format", "yaml"], "'yaml' is not one of 'table', 'json'; see rpcfast inspect --help"),
        (["demo", "--fast"], "No such option: --fast"),
    ],
)
def test_wrong_usage_is_one_line_that_says_where_to_look(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    """Exit code 2, nothing on the standard output."""
    assert run(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert words in printed.err
    assert printed.err.count("\n") == 1


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """And the exit code says that nothing was done."""
    assert run([]) == 2
    assert "Commands" in capsys.readouterr().out


def test_a_command_imports_only_what_it_needs() -> None:
    """`rpcfast call` pays neither for rich nor for pydantic."""
    code = "import sys; from rpcfast.cli.app import run; run(['call', 'unix:///nowhere', 'f']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"rich", "rich.console"}.isdisjoint(done.stdout.split())
