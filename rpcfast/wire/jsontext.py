"""Where one JSON text ends and the next begins, and whether a member stands twice; floor 1: bytes only.

The slow half of `jsonrpc`: used for a message that came in pieces or that the typed decoder refused. Each byte is
looked at once, whatever the cuts, so that no sender makes the work quadratic.
"""

# What is read without types is Any, and isinstance narrows Any to "partially unknown".
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from rpcfast.errors import DECODE_ERRORS

__all__ = ["MAX_NESTING", "Splitter", "first_repeated", "may_repeat", "repeats"]

MAX_NESTING: Final = 128

# Possessive quantifiers: a string that does not end is given up at once, without going back.
_BLACK: Final = re.compile(rb"[^ \t\r\n]")
_INSIDE: Final = re.compile(rb'"(?:[^"\\\n]|\\.)*+"|[{}\[\]"]', re.DOTALL)
_STRING: Final = re.compile(rb'(?:[^"\\\n]|\\.)*+', re.DOTALL)
_CLOSER_OF: Final = {b"{": b"}", b"[": b"]"}
_CLOSERS: Final = frozenset(_CLOSER_OF.values())


class Splitter:
    """Cuts a stream of JSON texts at the end of each object or array."""

    def __init__(self) -> None:
        self.error = ""
        """Why the text that waits can never end, or ''."""
        self._buffer = bytearray()  # begins with the text that waits
        self._after = 0  # the end of the last token
        self._at = 0  # the first byte not yet looked at
        self._stack: list[bytes] = []
        self._opened = False  # the last token was an opening bracket
        self._in_string = False
        self.skipping = False
        """Whether the rest of a line in error is still to come."""

    def __len__(self) -> int:
        return len(self._buffer) or self.skipping

    @property
    def size(self) -> int:
        """Bytes of the text that waits, or of the part before its error."""
        return self._at + 1 if self.error else len(self._buffer)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take bytes; give each text that is now whole. Stops at `error`, until `skip_line`."""
        self._buffer += data
        while not self.error and not (self.skipping and not self._skip()):
            end = self._find_end()
            if end is None:
                break
            text = bytes(memoryview(self._buffer)[:end])
            self._drop(end)
            yield text
        if not self._stack and not self.error:
            self._drop(len(self._buffer))  # white space between texts

    def skip_line(self) -> bool:
        """Drop the text in error and the rest of its line, which may be still to come.

        False when the text began on an earlier line: where the next one begins cannot be known, and a guess could run
        a part of this one.
        """
        one_line = self._buffer.find(b"\n", 0, self._at) < 0
        self._drop(self._at)
        self._stack, self._in_string, self.error = [], False, ""
        self.skipping = True
        return one_line

    def _skip(self) -> bool:
        end = self._buffer.find(b"\n") + 1
        self.skipping = not end
        self._drop(end or len(self._buffer))
        return bool(end)

    def _drop(self, end: int) -> None:
        del self._buffer[:end]
        self._at = self._after = 0

    def _find_end(self) -> int | None:
        while self._at < len(self._buffer):
            if self._in_string:
                if not self._leave_string():
                    return None
            else:
                end = self._scan()
                if end is not None or self.error:
                    return end
        return None

    def _leave_string(self) -> bool:
        match = _STRING.match(self._buffer, self._at)
        end = self._at = match.end() if match else self._at
        last = bytes(self._buffer[end : end + 1])
        if last == b'"':
            self._in_string = False
            self._at = self._after = end + 1
            return True
        if last == b"\n":
            self._fail(end, "a newline inside a string")
        return False  # nothing, or a backslash whose character has not come

    def _scan(self) -> int | None:  # noqa: C901 - the one switch over tokens, kept in one piece
        """Look at tokens until a text ends, a string is cut off, or nothing is left."""
        if not self._stack:
            self._begin()
            return None
        reason = ""
        for match in _INSIDE.finditer(self._buffer, self._at):
            token, at = match[0], match.start()
            if token in _CLOSERS:
                if token != self._stack.pop():
                    reason = "its brackets are not paired"
                elif not self._stack:
                    return match.end()
                self._opened = False
            elif not self._may_begin(at):
                reason = "two values without a comma between them"
            elif token in _CLOSER_OF:
                self._stack.append(_CLOSER_OF[token])
                self._opened = True
                if len(self._stack) > MAX_NESTING:
                    reason = f"it nests deeper than {MAX_NESTING} levels"
            else:
                self._opened = False
                if token == b'"':
                    self._in_string, self._at = True, match.end()
                    return None
            if reason:
                self._fail(at, reason)
                return None
            self._after = match.end()
        self._at = len(self._buffer)
        return None

    def _begin(self) -> None:
        match = _BLACK.search(self._buffer, self._at)
        if not match:
            self._at = len(self._buffer)
            return
        token = match[0]
        self._drop(match.start())  # white space before a text is no part of it
        if token in _CLOSER_OF:
            self._stack.append(_CLOSER_OF[token])
            self._opened = True
            self._at = self._after = 1
        else:
            self._fail(0, "it must be an object or an array")

    def _may_begin(self, at: int) -> bool:
        """Whether a value or key may begin here: after a comma or colon, or right after an opening bracket."""
        between = self._buffer[self._after : at].rstrip()
        return between.endswith((b",", b":")) if between else self._opened

    def _fail(self, at: int, reason: str) -> None:
        self._at = at
        self.error = f"the message is not JSON: {reason}"


class _Envelope(msgspec.Struct, gc=False):
    """The values of a message's members, left as they are."""

    jsonrpc: msgspec.Raw = msgspec.Raw()
    method: msgspec.Raw = msgspec.Raw()
    params: msgspec.Raw = msgspec.Raw()
    id: msgspec.Raw = msgspec.Raw()


_MEMBERS: Final = ("jsonrpc", "method", "params", "id")
_KEYS: Final = tuple(f'"{name}"'.encode() for name in _MEMBERS)
_decode_envelopes: Final = msgspec.json.Decoder(_Envelope | list[_Envelope]).decode_lines


def may_repeat(text: bytes, messages: int, ids: int, params: int) -> bool:
    """A quick suspicion that an envelope has a member twice: a key too many, or an escape that could hide one.

    There are `messages` envelopes, `ids` of them with an id (negative: that is not known), `params` with parameters.
    """
    if b"\\u" in text or ids < 0:
        return True
    count = text.count
    return count(_KEYS[0]) > messages or count(_KEYS[1]) > messages or count(_KEYS[2]) > params or count(_KEYS[3]) > ids


def repeats(text: bytes) -> bool:
    """Whether the suspicion stays when what stands inside the members' values is not counted, or cannot be told."""
    try:
        items = _decode_envelopes(text)
    except DECODE_ERRORS:
        return True
    envelopes = [e for item in items for e in (item if isinstance(item, list) else (item,))]
    rows = [tuple(map(bytes, msgspec.structs.astuple(e))) for e in envelopes]
    inside = b"\n".join([value for row in rows for value in row])
    if text.count(b"\\u") > inside.count(b"\\u"):
        return True
    columns = zip(_KEYS, zip(*rows, strict=True), strict=False)  # without envelopes there are no columns
    return any(text.count(key) - inside.count(key) > len(column) - column.count(b"") for key, column in columns)


def first_repeated(text: bytes) -> str:
    """The quoted name of the first member that stands twice in an envelope of `text`, some JSON; or ''."""

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        return {"twice": next((name for name in _MEMBERS if names.count(name) > 1), "")}

    value = json.loads(text, object_pairs_hook=members)
    found = [item["twice"] for item in (value if isinstance(value, list) else [value]) if isinstance(item, dict)]
    return next((repr(name) for name in found if name), "")
