"""docs/protocol.md, the golden bytes and the code say the same, in both directions."""

import re
from pathlib import Path
from struct import pack
from typing import Any

import msgspec
import pytest

from rpcfast.errors import BY_CODE, ErrorBody
from rpcfast.limits import Limits
from rpcfast.wire.events import Kind
from rpcfast.wire.native import OPENING, Hello, NativeCore, pack_frame

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "protocol.md").read_text()
GOLDEN = ROOT / "tests" / "golden" / "native-v1"
NAMES = sorted(path.stem for path in GOLDEN.glob("*.hex"))
ON_PAGE = dict(re.findall(r"^```hex ([\w-]+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))

msgpack = msgspec.msgpack.encode


def parse(text: str) -> dict[str, bytes]:
    """Bytes by direction: `>` from the client, `<` from the server, '' when the text does not say."""
    found: dict[str, bytes] = {}
    for line in text.splitlines():
        direction, digits = re.fullmatch(r"([<>]?) ?((?:[0-9a-f]{2} ?)*) *(?:#.*)?", line).groups()
        found[direction] = found.get(direction, b"") + bytes.fromhex(digits)
    return found


def golden(name: str) -> dict[str, bytes]:
    """Read a golden file."""
    return parse((GOLDEN / f"{name}.hex").read_text())


EVENTS: dict[str, Any] = {
    "hello": (Kind.HELLO, 0, Hello(codec="json", max_size=1048576)),
    "hello-defaults": (Kind.HELLO, 0, Hello()),
    "call": (Kind.CALL, 1, (b"sum", msgpack([2, 3]), None, None)),
    "call-by-name": (Kind.CALL, 2, (b"sum", msgpack({"a": 2, "b": 3}), None, None)),
    "call-timeout": (Kind.CALL, 3, (b"sum", msgpack([2, 3]), 1.5, None)),
    "call-metadata": (Kind.CALL, 4, (b"text.upper", msgpack(["hi"]), 0.25, {"tenant": "7"})),
    "notification": (Kind.NOTIFICATION, 0, (b"log", msgpack(["hello"]), None, None)),
    "result": (Kind.RESULT, 1, msgpack(5)),
    "result-empty": (Kind.RESULT, 9, msgpack(None)),
    "error": (Kind.ERROR, 2, msgpack(ErrorBody(-32601, "no procedure is named 'sun'"))),
    "error-data": (Kind.ERROR, 3, msgpack(ErrorBody(4001, "not enough", {"balance": 10, "needed": 25}))),
    "cancel": (Kind.CANCEL, 3, b""),
    "ping": (Kind.PING, 1, b"\x00\x01\x02\x03"),
    "pong": (Kind.PONG, 1, b"\x00\x01\x02\x03"),
    "going-away": (Kind.GOING_AWAY, 4, None),
    "going-away-error": (Kind.GOING_AWAY, 4, ErrorBody(-32003, "the server is stopping")),
}
"""What each golden frame is when it is sent."""
PLAIN_CALLS = {"call", "call-by-name"}


def received(event: Any) -> Any:
    """The event on the other side: a call without extras is keyed by its name."""
    kind, call_id, payload = event
    return (payload[0], call_id, payload[1]) if kind == Kind.CALL and payload[2:] == (None, None) else event


@pytest.mark.parametrize("name", EVENTS)
def test_our_bytes_are_the_golden_ones(name: str) -> None:
    """What we send today is what version 1 sent when it was fixed."""
    core = NativeCore()
    core.send(EVENTS[name])
    assert b"".join(core.data_to_send()) == golden(name)[""]


@pytest.mark.parametrize("name", EVENTS)
def test_golden_bytes_are_the_events(name: str) -> None:
    """What version 1 sent is read today as it was meant."""
    core = NativeCore()
    core.receive_data(OPENING + golden(name)[""])
    assert core.next_events() == [received(EVENTS[name])]


def test_opening_and_ignored_frame() -> None:
    """The opening is its golden bytes; a frame of a version to come is skipped."""
    assert golden("opening")[""] == OPENING
    core = NativeCore()
    core.receive_data(OPENING + golden("ignored")[""])
    assert (core.next_events(), core.ignored) == ([], 1)
    assert golden("ignored")[""] == pack(">IQBBH", 3, 0, 99, 0x80, 0) + b"\x01\x02\x03"


def test_every_kind_has_golden_bytes() -> None:
    """No kind that is spoken lacks a golden frame, and none is left without a test."""
    spoken = {event[0] for event in EVENTS.values()}
    assert spoken == {1, 2, 3, 4, 7, 9, 10, 11, 12}
    assert {*NAMES} == {*EVENTS, "opening", "ignored", "conversation"}


CONVERSATION: list[tuple[str, Any]] = [
    (">", (Kind.CALL, 1, (b"sum", msgpack([2, 3]), None, None))),
    (">", (Kind.CALL, 2, (b"sun", msgpack([]), 2.0, None))),
    (">", (Kind.NOTIFICATION, 0, (b"log", msgpack(["hello"]), None, None))),
    ("<", (Kind.RESULT, 1, msgpack(5))),
    ("<", (Kind.ERROR, 2, msgpack(ErrorBody(-32601, "no procedure is named 'sun'")))),
    (">", (Kind.PING, 1, b"")),
    ("<", (Kind.PONG, 1, b"")),
    (">", (Kind.CALL, 3, (b"slow", msgpack([]), None, None))),
    (">", (Kind.CANCEL, 3, b"")),
    ("<", (Kind.GOING_AWAY, 3, None)),
]


def test_conversation_is_what_two_cores_say() -> None:
    """A client and a server that talk to each other exchange the golden bytes, and each understands the other."""
    sides = {">": NativeCore(client=True), "<": NativeCore()}
    said = {">": b"".join(sides[">"].data_to_send()), "<": b""}
    sides["<"].receive_data(said[">"])
    for direction, event in CONVERSATION:
        sides[direction].send(event)
        data = b"".join(sides[direction].data_to_send())
        said[direction] += data
        sides["<" if direction == ">" else ">"].receive_data(data)
    assert said == golden("conversation")
    hello = (Kind.HELLO, 0, Hello())
    assert sides["<"].next_events() == [hello, *(received(event) for way, event in CONVERSATION if way == ">")]
    assert sides[">"].next_events() == [hello, *(event for way, event in CONVERSATION if way == "<")]


# ---- the page


def test_page_shows_every_golden_file() -> None:
    """The hex blocks of the page are the golden files, byte for byte and in the same words."""
    assert sorted(ON_PAGE) == NAMES
    for name, text in ON_PAGE.items():
        assert text == (GOLDEN / f"{name}.hex").read_text(), name


def test_page_annotates_its_bytes_rightly() -> None:
    """`size` and `id` in a comment are the numbers of the bytes before it."""
    lines = re.findall(r"^(?:[<>] )?((?:[0-9a-f]{2} ?)+) *# (?:size|id|timeout) (\d+)", PAGE, re.MULTILINE)
    assert len(lines) > 40
    assert [int(digits.replace(" ", ""), 16) for digits, _ in lines] == [int(number) for _, number in lines]


def test_page_lists_every_code_of_the_closed_set() -> None:
    """The table of codes has all classes, with their codes."""
    table = dict(re.findall(r"(-32\d{3}) \| (\w+)", PAGE))
    assert {int(code): name for code, name in table.items() if code != "-32000"} == {
        code: error.__name__ for code, error in BY_CODE.items()
    }


def test_page_lists_every_kind() -> None:
    """The table of kinds has the numbers of the code; those of later versions are reserved."""
    table = {name: int(number) for number, name in re.findall(r"^\| (\d+) \| ([A-Z_]+)", PAGE, re.MULTILINE)}
    assert table == {name: kind for name, kind in vars(Kind).items() if name.isupper() and kind < 20}
    reserved = {int(n) for n in re.findall(r"^\| (\d+) \| [A-Z_]+: reserved for a later version", PAGE, re.MULTILINE)}
    for kind in reserved:
        core = NativeCore()
        core.receive_data(OPENING + pack_frame(kind))
        assert core.next_events()[0][0] == Kind.CLOSED
    assert reserved == {5, 6, 8, 13}


def test_page_has_the_figures_of_the_code() -> None:
    """The defaults that the page names are those of `Limits`."""
    limits, text = Limits(), " ".join(PAGE.split())
    for said in (
        f"{limits.max_message_size} (16 MiB)",
        f"1 to {limits.max_batch:,} (default) requests",
        f"At most {limits.max_in_flight:,} calls (default)",
        f"sends nothing for {limits.first_byte_timeout:g} s",
        f"whole after {limits.frame_timeout:g} s",
        f"at least {limits.min_rate:g} bytes a second",
        f"in flight for {limits.idle_timeout:g} s",
        f"{limits.write_high_water // 1024} KiB wait, and is cut off after {limits.write_timeout:g} s",
        f"the calls in flight {limits.drain_timeout:g} s",
    ):
        assert said in text
