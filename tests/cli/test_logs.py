"""What the command logs: text for people, JSON for machines."""

import json
import logging
import subprocess
import sys

import pytest

from rpcfast import Server
from rpcfast.cli.logs import JsonFormatter, announce_as

CODE = """
import logging
{before}
from rpcfast.cli.logs import configure
configure("warning", "text")
logging.getLogger("rpcfast").info("hidden")
logging.getLogger("rpcfast").warning("shown")
logging.getLogger("users.own").warning("shown too")
"""


def run(before: str = "") -> list[str]:
    """The lines that a fresh process logs."""
    code = CODE.format(before=before)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    return done.stderr.splitlines()


def test_records_of_the_level_and_above_are_text_lines() -> None:
    """Ours and the user's alike."""
    ours, theirs = run()
    assert ours.endswith("WARNING rpcfast: shown")
    assert theirs.endswith("WARNING users.own: shown too")


def test_logging_that_the_user_set_up_stays() -> None:
    """A file that configured logging itself gets its own format, and nothing twice."""
    assert run("logging.basicConfig(format='mine %(message)s')") == ["mine shown", "mine shown too"]


def test_json_has_time_level_logger_message_and_traceback() -> None:
    """One object, one line, also for a traceback of many lines; the time is UTC."""
    error = ValueError("two\nlines")
    info = type(error), error, None
    record = logging.LogRecord("some.logger", logging.ERROR, __file__, 1, "%s failed", ("it",), info)
    record.created, record.msecs = 1_700_000_000.25, 250
    text = JsonFormatter().format(record)
    assert "\n" not in text
    fields = json.loads(text)
    assert "ValueError: two\nlines" in fields.pop("exception")
    assert fields == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "error",
        "logger": "some.logger",
        "message": "it failed",
    }


@pytest.mark.parametrize("style", ["text", "json"])
def test_over_standard_output_nothing_is_announced(capsys: pytest.CaptureFixture[str], style: str) -> None:
    """A server without an address was started by whoever talks to it."""
    announce_as(style, Server())
    assert capsys.readouterr() == ("", "")
