"""Servers as children: they tell where they listen, and end with the stack that holds them."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from rpcfast import Client, Unavailable
from rpcfast.cli.failure import Failure
from rpcfast.cli.starting import start


def test_servers_run_as_long_as_their_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several start together; the user's own RPCFAST_ settings are not meant for them."""
    monkeypatch.setenv("RPCFAST_UDS", "/nowhere/at/all")
    with ExitStack() as stack:
        path = str(tmp_path / "s")
        tcp, unix = start(stack, [["rpcfast.quickstart", "--port", "0"], ["rpcfast.quickstart", "--uds", path]])
        for address in (tcp, unix):
            with Client(address) as client:
                assert client.sum(1, 2) == 3
    assert unix == f"unix://{path}"
    with Client(tcp) as client, pytest.raises(Unavailable):
        client.sum(1, 2)


def test_what_a_server_says_instead_is_passed_on() -> None:
    """Its own line, not only that it ended."""
    with ExitStack() as stack, pytest.raises(Failure, match=r"there is no file nowhere\.py") as raised:
        start(stack, [["nowhere.py"]])
    assert raised.value.code == 1
