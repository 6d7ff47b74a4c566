"""What the replaying engines need to know of a protocol (`Wire`), and what they hand back (`Tally`). No I/O."""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Callable, Sequence

ID_SIZE = 8  # a call's id, where the protocol has one that must grow: unsigned, big endian


def _nothing_to_open(_: socket.socket) -> None:
    """Open a protocol that begins with its first call."""


@dataclasses.dataclass(frozen=True)
class Wire:
    """One call as bytes: what goes out, and what must come back.

    `answer` is compared byte by byte where `mask` is not zero. The ids' bytes are written over at their offsets
    (None: the same bytes every time); they count up from 1 on each connection. Answers come in the order of the calls.
    """

    request: bytes
    answer: bytes
    request_id_at: int | None = None
    answer_id_at: int | None = None
    varies: tuple[slice, ...] = ()  # parts of the answer that change by themselves, such as a date
    open: Callable[[socket.socket], None] = _nothing_to_open

    @property
    def mask(self) -> bytes:
        """255 for each byte of the answer that must match the template, 0 for the others."""
        mask = bytearray(b"\xff" * len(self.answer))
        parts = list(self.varies)
        if self.answer_id_at is not None:
            parts.append(slice(self.answer_id_at, self.answer_id_at + ID_SIZE))
        for part in parts:
            mask[part] = bytes(len(mask[part]))
        return bytes(mask)


@dataclasses.dataclass(frozen=True)
class Tally:
    """What an engine counted; times in nanoseconds."""

    calls: int
    wrong: int
    nanoseconds: int
    p50: float
    p99: float

    @classmethod
    def of(cls, latencies: Sequence[int], wrong: int, nanoseconds: int) -> Tally:
        """Count a list of latencies, one for each call."""
        ordered = sorted(latencies)
        last = len(ordered) - 1
        return cls(len(ordered), wrong, nanoseconds, ordered[int(last * 0.50)], ordered[int(last * 0.99)])
