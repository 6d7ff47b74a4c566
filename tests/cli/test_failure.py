"""How a command ends."""

import pytest

from rpcfast.cli import main
from rpcfast.cli.failure import NO_CONNECTION, REMOTE, USAGE, Failure


def test_the_exit_codes_are_those_of_the_contract() -> None:
    """1 the call failed, 2 wrong usage, 3 no connection; what is not said otherwise is wrong usage."""
    assert (REMOTE, USAGE, NO_CONNECTION) == (1, 2, 3)
    assert Failure("text").code == 2


def test_a_failure_is_its_text_and_its_code(capsys: pytest.CaptureFixture[str]) -> None:
    """`main` writes the text to the standard error and exits with the code."""
    with pytest.raises(SystemExit) as raised:
        main(["call", "unix:///nowhere", "f"])
    assert raised.value.code == 3
    assert capsys.readouterr().err.startswith("error: cannot connect to unix:///nowhere: No such file or directory")
