"""Every example does what it says, run as a user runs it."""

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples"

PRINTED = {
    "codec_cbor": "5\n",
    "errors": (
        "4001 Ada has too little {'balance': 10, 'needed': 25}\n"
        "$.amount Expected a number greater than 0\n"
        "$.account Missing\n"
        "$.acount No parameter has this name\n"
        "-32603 broken failed; the server's log says why\n"
    ),
    "namespaces": "User(id=1, name='Ada')\nAda would wait 60 s more\n",
    "shapes": (
        "9.0\n9.0\n2027-01-01\n#808080\ngrey: $.level: Expected a number less than or equal to 255\nHello Ada\n"
    ),
}
SERVED = {"quickstart"}
"""Serves until it is stopped: tests/cli starts it."""


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_prints_what_it_should(name: str) -> None:
    """The example ends well and prints exactly this."""
    done = subprocess.run(
        [sys.executable, FOLDER / f"{name}.py"], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout) == (0, PRINTED[name]), done.stderr


def test_each_example_is_tested() -> None:
    """No example is without a test."""
    assert {path.stem for path in FOLDER.glob("*.py")} == {*PRINTED, *SERVED}


def test_a_codec_takes_less_than_forty_lines() -> None:
    """As the documentation promises."""
    assert len((FOLDER / "codec_cbor.py").read_text().splitlines()) < 40
