"""Targets: what a user types becomes a scheme and its parts, or a text that says what was expected."""

import pytest

from rpcfast.transport.target import Target, parse_target


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("tcp://127.0.0.1:9000", Target("tcp", "127.0.0.1", 9000)),
        ("TCP://Example.org", Target("tcp", "example.org", 8000)),
        ("tcp://example.org:80/", Target("tcp", "example.org", 80)),
        ("localhost", Target("tcp", "localhost", 8000)),
        ("localhost:9000", Target("tcp", "localhost", 9000)),
        ("tcp://[::1]:9000", Target("tcp", "::1", 9000)),
        ("[::1]", Target("tcp", "::1", 8000)),
        ("unix:///run/app.sock", Target("unix", path="/run/app.sock")),
        ("unix:/run/app.sock", Target("unix", path="/run/app.sock")),
        ("unix:///run/a b?c#d%20", Target("unix", path="/run/a b?c#d%20")),
        ("exec:rpcfast serve 'a b.py' --stdio", Target("exec", command=("rpcfast", "serve", "a b.py", "--stdio"))),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_target_is_read(text: str, target: Target) -> None:
    """Each form gives its parts, and the parts give a text that is read the same way."""
    assert parse_target(text) == target
    assert parse_target(str(target)) == target


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "needs a host"),
        ("tcp://", "needs a host"),
        ("tcp://:9000", "needs a host"),
        ("tcp://host:99999", "Port out of range"),
        ("tcp://host:x", "Port could not be cast"),
        ("tcp://host:0", "port 0"),
        ("tcp://host:1/path", "nothing may follow"),
        ("tcp://host:1?query", "nothing may follow"),
        ("tcp://host:1#part", "nothing may follow"),
        ("tcp://user@host:1", "nothing may follow"),
        ("tcp://[::1", "Invalid IPv6 URL"),
        ("gopher://host", "the scheme 'gopher' is unknown"),
        ("unix://relative/path", "needs a path"),
        ("unix://", "needs a path"),
        ("exec:", "needs a command"),
        ("exec:'open", "No closing quotation"),
    ],
)
def test_what_cannot_be_read_says_why(text: str, reason: str) -> None:
    """A `ValueError` names what is wrong."""
    with pytest.raises(ValueError, match=reason):
        parse_target(text)
