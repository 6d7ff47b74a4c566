"""The transport in memory: bytes in order and never in the same call, pauses, the end, the loss."""

import asyncio
from typing import Any

import pytest

from rpcfast.transport.memory import MemoryTransport, connect_pair
from tests.services import until


class End(asyncio.Protocol):
    """Notes what happens to it; `keep` says what it answers to the end of its peer."""

    def __init__(self, *, keep: bool = False) -> None:
        self.transport: Any = None
        self.seen: list[Any] = []
        self.keep = keep

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.seen.append(data)

    def eof_received(self) -> bool:
        self.seen.append("eof")
        return self.keep

    def connection_lost(self, exc: Exception | None) -> None:
        self.seen.append("lost")

    def pause_writing(self) -> None:
        self.seen.append("pause")

    def resume_writing(self) -> None:
        self.seen.append("resume")


@pytest.fixture
async def ends() -> tuple[End, End]:
    """Two connected ends, the second of which stays open when the first has ended."""
    one, other = End(), End(keep=True)
    connect_pair(one, other)
    return one, other


async def turn(times: int = 3) -> None:
    """Let the loop turn."""
    for _ in range(times):
        await asyncio.sleep(0)


async def test_bytes_arrive_in_order_and_later(ends: tuple[End, End]) -> None:
    """Nothing is delivered within the call that writes; what was written is copied."""
    one, other = ends
    data = bytearray(b"a")
    one.transport.write(data)
    data[:] = b"x"
    one.transport.write(b"b")
    one.transport.write(b"")
    assert other.seen == []
    await turn()
    assert other.seen == [b"a", b"b"]


async def test_an_end_that_does_not_read_pauses_the_other(ends: tuple[End, End]) -> None:
    """Beyond the high water the writer is paused once; it goes on when half of that is read."""
    one, other = ends
    one.transport.set_write_buffer_limits(high=10)
    other.transport.pause_reading()
    assert not other.transport.is_reading()
    one.transport.write(b"x" * 10)
    assert one.seen == []
    one.transport.write(b"x")
    one.transport.write(b"x")
    await turn()
    assert (one.seen, other.seen, one.transport.get_write_buffer_size()) == (["pause"], [], 12)
    other.transport.resume_reading()
    await turn()
    assert (one.seen, b"".join(other.seen), one.transport.get_write_buffer_size()) == (
        ["pause", "resume"],
        b"x" * 12,
        0,
    )


async def test_a_close_delivers_what_was_written(ends: tuple[End, End]) -> None:
    """What stands before a close arrives; then the other end hears of it, once, and is lost too."""
    one, other = ends
    one.transport.write(b"last")
    one.transport.close()
    one.transport.close()
    assert one.transport.is_closing()
    await until(lambda: other.seen[-1:] == ["lost"])
    assert other.seen == [b"last", "eof", "lost"]
    assert one.seen == ["lost"]


async def test_nothing_is_written_after_a_close(ends: tuple[End, End]) -> None:
    """What is written to an end that closes, or is gone, is dropped."""
    one, other = ends
    one.transport.close()
    one.transport.write(b"late")
    await until(lambda: other.seen[-1:] == ["lost"])
    one.transport.write(b"late")
    other.transport.write(b"late")
    await turn()
    assert other.seen == ["eof", "lost"]
    assert one.seen == ["lost"]


async def test_an_abort_loses_what_was_written(ends: tuple[End, End]) -> None:
    """What the other end has not taken yet is gone."""
    one, other = ends
    one.transport.write(b"lost")
    one.transport.abort()
    await until(lambda: other.seen[-1:] == ["lost"])
    assert other.seen == ["eof", "lost"]


async def test_half_a_close_leaves_the_other_way_open(ends: tuple[End, End]) -> None:
    """After `write_eof` the other end hears the end once, and its answer still arrives."""
    one, other = ends
    assert one.transport.can_write_eof()
    one.transport.write(b"question")
    one.transport.write_eof()
    await turn()
    other.transport.pause_reading()
    other.transport.resume_reading()
    await turn()
    assert other.seen == [b"question", "eof"]
    other.transport.write(b"answer")
    other.transport.close()
    await until(lambda: one.seen[-1:] == ["lost"])
    assert one.seen == [b"answer", "eof", "lost"]


async def test_the_end_comes_after_unread_bytes(ends: tuple[End, End]) -> None:
    """An end that does not read hears of nothing until it has read what came before."""
    one, other = ends
    other.transport.pause_reading()
    one.transport.write(b"first")
    one.transport.close()
    await turn(5)
    assert other.seen == []
    other.transport.resume_reading()
    await until(lambda: other.seen[-1:] == ["lost"])
    assert other.seen == [b"first", "eof", "lost"]


async def test_a_writer_whose_peer_is_gone_goes_on(ends: tuple[End, End]) -> None:
    """An end that was paused is woken when nobody is left to read, so that it can find out."""
    one, other = ends
    one.transport.set_write_buffer_limits(high=1)
    other.transport.pause_reading()
    one.transport.write(b"xx")
    other.transport.close()
    await until(lambda: one.seen[-1:] == ["lost"])
    assert one.seen == ["pause", "resume", "eof", "lost"]


async def test_an_end_that_closes_reads_no_more(ends: tuple[End, End]) -> None:
    """Bytes that arrive between the close and its end are not delivered, even if reading is resumed."""
    one, other = ends
    one.transport.write(b"x")
    other.transport.close()
    other.transport.resume_reading()
    await until(lambda: one.seen[-1:] == ["lost"])
    assert other.seen == ["lost"]


async def test_a_protocol_can_be_replaced(ends: tuple[End, End]) -> None:
    """What arrives later goes to the new protocol."""
    one, other = ends
    new = End()
    other.transport.set_protocol(new)
    assert other.transport.get_protocol() is new
    one.transport.write(b"x")
    await turn()
    assert (other.seen, new.seen) == ([], [b"x"])
    assert "open, 0 bytes unread" in repr(other.transport)
    assert isinstance(other.transport, MemoryTransport)
