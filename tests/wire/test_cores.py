"""What holds for every core: cuts do not matter, garbage raises nothing, the end is the end, memory is bounded."""

import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcfast.wire.events import Kind
from rpcfast.wire.native import pack_frame
from tests.wire.cores import SMALL, SPEAKERS, Speaker, comparable, cut, documented, feed, mutated, streams

every_core = pytest.mark.parametrize("speaker", SPEAKERS, ids=repr)


def singly(data: bytes) -> list[bytes]:
    """`data` byte by byte."""
    return [data[i : i + 1] for i in range(len(data))]


@every_core
def test_each_good_message_is_an_event(speaker: Speaker) -> None:
    """No message of the good ones ends the connection, and all but white space and skipped frames are events."""
    events, _ = feed(speaker.make(), [speaker.start + b"".join(speaker.good)])
    assert len(events) >= len(speaker.good) - 6
    assert all(event[0] not in (Kind.CLOSED, Kind.FAILED, Kind.INVALID) for event in events)


@every_core
def test_each_bad_message_is_refused(speaker: Speaker) -> None:
    """Each of the bad messages is answered, counted or ends the connection, alone as well as after a good one."""
    refusals = {Kind.CLOSED, Kind.FAILED, Kind.INVALID, Kind.IGNORED, Kind.BATCH}
    for message in speaker.bad:
        events, _ = feed(speaker.make(), [speaker.start + speaker.good[0] + message])
        assert len(events) > 1 or events[0][0] in refusals, message
        assert events[-1][0] in refusals, message


@every_core
@given(st.data())
def test_cuts_do_not_matter(speaker: Speaker, data: st.DataObject) -> None:
    """Whole, byte by byte and cut anywhere, a stream gives the same events and the same answers."""
    stream = data.draw(streams(speaker))
    places = data.draw(st.lists(st.integers(0, 10_000), max_size=10))
    whole = feed(speaker.make(), [stream])
    assert feed(speaker.make(), cut(stream, places)) == whole
    assert feed(speaker.make(), singly(stream)) == whole


@every_core
@given(st.data())
def test_cuts_of_a_damaged_stream_do_not_matter(speaker: Speaker, data: st.DataObject) -> None:
    """A damaged stream gives the same events, however it is cut."""
    stream = data.draw(mutated(speaker))
    places = data.draw(st.lists(st.integers(0, 10_000), max_size=10))
    whole = feed(speaker.make(), [stream])
    assert feed(speaker.make(), cut(stream, places)) == whole
    assert feed(speaker.make(), singly(stream)) == whole


@every_core
@given(st.data())
def test_a_damaged_stream_gives_documented_events(speaker: Speaker, data: st.DataObject) -> None:
    """Whatever is done to a stream, the core raises nothing and gives events that its protocol knows."""
    documented(speaker, data.draw(mutated(speaker)))


@every_core
@given(st.binary(max_size=200))
def test_random_bytes_give_documented_events(speaker: Speaker, data: bytes) -> None:
    """So do random bytes, from the first one or after a good start."""
    documented(speaker, data)
    documented(speaker, speaker.start + speaker.good[0] + data)


@every_core
def test_a_stream_that_ends_anywhere(speaker: Speaker) -> None:
    """A stream cut short after any byte gives the events of its whole messages, and at most one more for the rest."""
    stream = speaker.start + b"".join(speaker.good)
    whole, _ = feed(speaker.make(), [stream])
    for end in range(len(stream)):
        events, _ = feed(speaker.make(), [stream[:end]])
        last = [event for event in events if event not in whole]
        assert len(last) <= 1
        assert all(event[0] in (Kind.CLOSED, Kind.FAILED) for event in last)


@every_core
def test_events_wait_until_they_are_taken(speaker: Speaker) -> None:
    """Events of several reads may be taken together; taken once, they are gone."""
    core, other = speaker.make(), speaker.make()
    stream = speaker.start + b"".join(speaker.good)
    for piece in cut(stream, range(0, len(stream), 7)):
        core.receive_data(piece)
    assert comparable(core.next_events()) == feed(other, [stream])[0]
    assert core.next_events() == []


def peak_of(core: Any, pieces: list[bytes]) -> int:
    """Most bytes in use while a core takes pieces."""
    tracemalloc.start()
    try:
        for piece in pieces:
            core.receive_data(piece)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


UNFINISHED = {"native": pack_frame(Kind.PING, 1, b"x" * 60_000)[:-1], "jsonrpc": b'{"jsonrpc":"' + b"x" * 60_000}


@every_core
@pytest.mark.parametrize("size", [1, 2, 3, 700])
def test_memory_follows_the_bytes(speaker: Speaker, size: int) -> None:
    """A message that comes in small pieces takes a small multiple of its bytes, not of its pieces."""
    unfinished = UNFINISHED[speaker.name]
    core = type(speaker.make())(client=False) if speaker.name == "native" else speaker.make()
    if speaker.name == "jsonrpc":
        core._max_size = 10**6
    core.receive_data(speaker.start)
    pieces = [unfinished[i : i + size] for i in range(0, len(unfinished), size)]
    assert peak_of(core, pieces) < 4 * len(unfinished) + 16_384
    assert core.waiting == len(unfinished)


BOMBS = {
    "native": [
        b"\x00\xff\xff\xff" + bytes(7) + b"\x01\x03\x00\x00\x00",
        pack_frame(Kind.HELLO, 0, b"\xdf\xff\xff\xff\xff"),
        pack_frame(Kind.HELLO, 0, b"\x81\xa5codec\xdb\xff\xff\xff\xff"),
        pack_frame(Kind.GOING_AWAY, 1, b"\x83\xa4code\x01\xa7message\xa0\xa4data\xdd\x7f\xff\xff\xff"),
    ],
    "jsonrpc": [b"[" * 100_000, b'{"id":' * 30_000, b"[[" + b"],[" * 300, b'{"id":' + b"9" * 1_000],
}


@every_core
def test_what_is_claimed_takes_no_memory(speaker: Speaker) -> None:
    """A claimed length, or a nesting that never ends, takes memory for what came and not for what was said."""
    for bomb in BOMBS[speaker.name]:
        core = speaker.make()
        assert peak_of(core, [speaker.start, bomb]) < 65_536 + 4 * len(bomb), bomb[:20]
        core.receive_eof()


@every_core
def test_a_message_over_the_limit_ends_the_connection(speaker: Speaker) -> None:
    """A message that is too large ends the connection, whole or byte by byte; what stood before it is kept."""
    large = {"native": pack_frame(Kind.PING, 1, b"x" * (SMALL + 1)), "jsonrpc": b'["' + b"x" * SMALL + b'"]'}
    stream = speaker.start + speaker.good[0] + large[speaker.name] + speaker.good[0]
    events, answers = feed(speaker.make(), [stream])
    assert events[-1][2][1] == -32004
    assert len(events) == (2 if speaker.name == "native" else 3)
    assert feed(speaker.make(), singly(stream)) == (events, answers)


@every_core
@settings(max_examples=20)
@given(st.data())
def test_repr_says_the_state(speaker: Speaker, data: st.DataObject) -> None:
    """A core can be printed in any state."""
    core = speaker.make()
    core.receive_data(data.draw(mutated(speaker)))
    assert repr(core).startswith("<")
