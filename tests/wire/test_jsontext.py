"""Where one JSON text ends, and whether a member stands twice."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcfast.wire.jsontext import MAX_NESTING, Splitter, first_repeated, may_repeat, repeats

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=10,
)
TEXTS = st.builds(
    lambda value, indent, ascii_only: json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode(),
    st.lists(VALUES, max_size=3) | st.dictionaries(st.text(max_size=4), VALUES, max_size=3),
    st.sampled_from((None, 0, 2)),
    st.booleans(),
)
BLANKS = st.sampled_from((b"", b"\n", b"\r\n", b" \t ", b"\n\n"))


def split(*pieces: bytes) -> list[bytes]:
    """The texts of a stream; the splitter must end without an error, and empty."""
    splitter = Splitter()
    texts = [text for piece in pieces for text in splitter.feed(piece)]
    assert not splitter.error
    assert not splitter
    return texts


@given(st.lists(st.tuples(TEXTS, BLANKS), max_size=5), st.integers(1, 9))
def test_texts_come_out_as_they_went_in(parts: list[tuple[bytes, bytes]], size: int) -> None:
    """Any JSON objects and arrays with any white space between them are cut at their ends, however they arrive."""
    stream = b"".join(text + blank for text, blank in parts)
    texts = [text for text, _ in parts]
    assert split(stream) == texts
    assert split(*(stream[i : i + size] for i in range(0, len(stream), size))) == texts


@pytest.mark.parametrize("text", [b'["\\""]', b'["\\\\"]', b'["a]b"]', b'{"{":"}"}', b'["\\u005d"]', b"[[],{}]"])
def test_strings_hide_brackets(text: bytes) -> None:
    """What stands inside a string ends nothing, also when the cut is between a backslash and what it escapes."""
    for i in range(len(text)):
        assert split(text[:i], text[i:] + b"[]") == [text, b"[]"]


@pytest.mark.parametrize(
    ("text", "reason", "size"),
    [
        (b"x", "it must be an object or an array", 1),
        (b"  12", "it must be an object or an array", 1),
        (b'"a"', "it must be an object or an array", 1),
        (b"]", "it must be an object or an array", 1),
        (b"\x0b[]", "it must be an object or an array", 1),
        (b"[}", "its brackets are not paired", 2),
        (b'{"a":[1}', "its brackets are not paired", 8),
        (b'["a"\n"b"]', "two values without a comma between them", 6),
        (b"[1[", "two values without a comma between them", 3),
        (b'[{} "', "two values without a comma between them", 5),
        (b'["a\nb"]', "a newline inside a string", 4),
        (b"[" * (MAX_NESTING + 1), f"it nests deeper than {MAX_NESTING} levels", MAX_NESTING + 1),
    ],
)
def test_text_that_can_never_end(text: bytes, reason: str, size: int) -> None:
    """The reason is found at the same byte, whether the text comes at once or byte by byte."""
    whole, singly = Splitter(), Splitter()
    assert list(whole.feed(text + b" more")) == []
    for i in range(len(text)):
        assert list(singly.feed(text[i : i + 1])) == []
    assert whole.error == singly.error == f"the message is not JSON: {reason}"
    assert whole.size == singly.size == size


def test_deepest_text_that_is_allowed() -> None:
    """A text of exactly the deepest nesting passes."""
    text = b"[" * MAX_NESTING + b"]" * MAX_NESTING
    assert split(text + text) == [text, text]


def test_rest_of_a_line_is_skipped() -> None:
    """After an error the line is dropped, in whatever pieces it comes; the next line is read."""
    for pieces in ([b"x {}\n[1]"], [b"x", b" {}", b"\n", b"[1]"]):
        splitter, texts = Splitter(), []
        for piece in pieces:
            texts += splitter.feed(piece)
            if splitter.error:
                assert splitter.skip_line()
                texts += splitter.feed(b"")
        assert texts == [b"[1]"]
        assert not splitter


def test_skipping_waits_for_the_end_of_the_line() -> None:
    """A line that is being skipped counts as waiting, but takes no memory."""
    splitter = Splitter()
    list(splitter.feed(b"x"))
    splitter.skip_line()
    assert list(splitter.feed(b"y" * 1_000)) == []
    assert splitter.skipping
    assert len(splitter) == 1
    assert list(splitter.feed(b"\n[]")) == [b"[]"]
    assert not splitter.skipping


@pytest.mark.parametrize(
    ("text", "one_line"), [(b"[1}", True), (b"\n\n[1}", True), (b"[\n1}", False), (b"[1,\n}", False)]
)
def test_error_of_several_lines_is_told(text: bytes, one_line: bool) -> None:
    """`skip_line` says whether the text in error began on the line that it skips."""
    splitter = Splitter()
    list(splitter.feed(text + b" rest\n"))
    assert splitter.error
    assert splitter.skip_line() is one_line


@pytest.mark.parametrize(
    "text", [b'["' + b"\\" * 60_000, b'["' + b"a" * 60_000, b"[" + b"1" * 60_000, b"[" + b" " * 60_000]
)
def test_work_is_linear(text: bytes) -> None:
    """A text that comes byte by byte is looked at once: ten times the bytes take about ten times as long."""

    def seconds(size: int) -> float:
        splitter, start = Splitter(), time.process_time()
        for i in range(size):
            list(splitter.feed(text[i : i + 1]))
        return time.process_time() - start

    # Quadratic work would take a hundred times as long; the least of a few is free of what else runs here.
    assert min(seconds(40_000) for _ in range(2)) < 40 * min(seconds(4_000) for _ in range(3))


# ---- members that stand twice

ENVELOPE = '{"jsonrpc":"2.0","method":"f","params":[],"id":1}'


@st.composite
def envelopes(draw: Any) -> tuple[bytes, str]:
    """A message or a batch as text, and the first member that stands twice in an envelope of it."""
    names = ("jsonrpc", "method", "params", "id", "extra")
    values = st.sampled_from(
        ('"id"', "1", '{"id":1,"method":2}', '[{"params":[]},"method"]', '"\\u0041"', '"a\\"id\\""')
    )
    found, texts = "", []
    for _ in range(draw(st.integers(1, 3))):
        members = draw(st.lists(st.tuples(st.sampled_from(names), st.booleans(), values), max_size=6))
        keys = [f"\\u{ord(name[0]):04x}{name[1:]}" if escaped else name for name, escaped, _ in members]
        texts.append("{" + ",".join(f'"{key}":{value}' for key, (_, _, value) in zip(keys, members, strict=True)) + "}")
        plain = [name for name, _, _ in members if name != "extra"]
        found = found or next((repr(name) for name in names if plain.count(name) > 1), "")
    text = texts[0] if len(texts) == 1 else "[" + ",".join(texts) + "]"
    if len(texts) == 1 and draw(st.booleans()):
        text = f"[{text}]"
    return text.encode(), found


@given(envelopes())
def test_repeated_member_is_always_found(case: tuple[bytes, str]) -> None:
    """A member that stands twice is suspected, stays suspected and is named; a sound message is named never."""
    text, name = case
    assert first_repeated(text) == name
    if name:
        assert may_repeat(text, 1, 1, 1)
        assert repeats(text)


@pytest.mark.parametrize(
    "text",
    [
        ENVELOPE,
        ENVELOPE.replace("[]", '{"id":1,"method":"method"}'),
        ENVELOPE.replace("[]", '["\\u0069d","\\\\u"]'),
        f"[{ENVELOPE},{ENVELOPE}]",
        f"{ENVELOPE}\n[{ENVELOPE}]\n",
        "[]",
    ],
)
def test_suspicion_of_a_sound_message_goes_away(text: str) -> None:
    """Names and escapes inside the members' values are told apart without reading the message a second time."""
    assert not repeats(text.encode())


def test_suspicion_is_quick_for_plain_messages() -> None:
    """As many keys as there should be raise no suspicion; one more does, and so does a batch or an escape."""
    text = ENVELOPE.encode()
    assert not may_repeat(text, 1, 1, 1)
    assert not may_repeat(text * 3, 3, 3, 3)
    assert may_repeat(text, 1, 0, 1)
    assert may_repeat(text, 1, 1, 0)
    assert may_repeat(text * 2, 1, 2, 2)
    assert may_repeat(text, 1, -1, 1)
    assert may_repeat(b'{"\\u0069d":1}', 1, 1, 1)


def test_what_cannot_be_told_stays_suspected() -> None:
    """A text that is no envelope is left to the thorough look."""
    assert repeats(b'{"id":1} x')
    assert repeats(b"[1]")
