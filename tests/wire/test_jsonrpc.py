"""JSON-RPC over a byte stream: the specification's examples, bad input, and where the stream goes on after it."""
# ruff: noqa: D103 - a procedure that is only described says all in its signature

import itertools
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from rpcfast.errors import ErrorBody, InvalidParams, NotFound, ResourceExhausted
from rpcfast.schema import describe, register_type
from rpcfast.wire.events import Kind
from rpcfast.wire.jsonrpc import (
    LARGE,
    MAX_STRIKES,
    NO_ID,
    Contract,
    JsonRpcCore,
    answer_error,
    answer_with,
    inline_with,
    params_of,
)
from tests.wire.cores import comparable, feed, request
from tests.wire.json_cases import NO, YES


class Odd:
    """A type whose decoder raises what no decoder should."""


register_type(Odd, encode=lambda _: 1 / 0, decode=lambda value: {}[value])


class Picky(msgspec.Struct):
    """A Struct that raises something odd as it is made."""

    value: int

    def __post_init__(self) -> None:
        if self.value == 13:
            raise KeyError(self.value)


def subtract(minuend: int, subtrahend: int) -> int: ...
def update(a: int, b: int, c: int, d: int, e: int) -> None: ...
def sum(a: int, b: int, c: int) -> int: ...
def notify_hello(value: int) -> None: ...
def get_data() -> list[Any]: ...
def exact(value: Decimal) -> Decimal: ...
def table(rows: dict[int, str]) -> int: ...
def anything(value: Any) -> Any: ...
def some(value: Any = None) -> Any: ...
def odd(value: Odd) -> None: ...
def picky(value: Picky) -> None: ...


FUNCTIONS = (subtract, update, sum, notify_hello, get_data, exact, table, anything, some, odd, picky)
CONTRACT = Contract([describe(function) for function in FUNCTIONS])
NAME_OF = {key: name for name, key in CONTRACT.keys.items()}
GOOD = request(method="subtract", params=[42, 23], id=1)
CALLED = ["subtract", 1, (42, 23)]


def told(event: Any) -> Any:
    """An event in short: name, id and parameters of what is to be run, kind, id and code of what is refused."""
    key, call_id, payload = event
    if key in NAME_OF:
        return [NAME_OF[key], call_id, params_in(payload)]
    if key == Kind.NOTIFICATION:
        message_type, message, timeout, metadata = payload
        assert (timeout, metadata) == (None, None)
        return ["notification", NAME_OF[message_type], params_in(message)]
    if key in (Kind.FAILED, Kind.CLOSED):
        return ["failed" if key == Kind.FAILED else "closed", call_id, payload.code]
    if key == Kind.INVALID:
        return ["invalid", call_id, NAME_OF[payload[0]], payload[1]]
    return ["batch", [told(item) for item in payload]] if key == Kind.BATCH else [key, call_id, payload]


def params_in(message: Any) -> Any:
    """Parameters as they were decoded: a tuple, or a dict of those by name."""
    params = params_of(message)
    return params if isinstance(params, tuple) else msgspec.structs.asdict(params)


def core_of(**options: Any) -> JsonRpcCore:
    """A core of the test's contract."""
    return JsonRpcCore(CONTRACT, **options)


def events_of(data: bytes, *, eof: bool = True, **options: Any) -> list[Any]:
    """The events of `data` in short; they are the same when it comes byte by byte."""
    core = core_of(**options)
    core.receive_data(data)
    if eof:
        core.receive_eof()
    events = core.next_events()
    if len(data) < 10_000:
        pieces = [data[i : i + 1] for i in range(len(data))]
        assert feed(core_of(**options), pieces, eof=eof)[0] == comparable(events)
    return [told(event) for event in events]


def failed(code: int, call_id: Any = NO_ID) -> Any:
    """A refusal in short."""
    return ["failed", call_id, code]


# ---- the specification's examples, section 7

INVALID_REQUEST, PARSE_ERROR, UNKNOWN = failed(-32600), failed(-32700), failed(-32601, "5")
EXAMPLES: list[tuple[bytes, list[Any]]] = [
    (b'{"jsonrpc": "2.0", "method": "subtract", "params": [42, 23], "id": 1}', [["subtract", 1, (42, 23)]]),
    (b'{"jsonrpc": "2.0", "method": "subtract", "params": [23, 42], "id": 2}', [["subtract", 2, (23, 42)]]),
    (
        b'{"jsonrpc": "2.0", "method": "subtract", "params": {"subtrahend": 23, "minuend": 42}, "id": 3}',
        [["subtract", 3, {"minuend": 42, "subtrahend": 23}]],
    ),
    (
        b'{"jsonrpc": "2.0", "method": "subtract", "params": {"minuend": 42, "subtrahend": 23}, "id": 4}',
        [["subtract", 4, {"minuend": 42, "subtrahend": 23}]],
    ),
    (
        b'{"jsonrpc": "2.0", "method": "update", "params": [1,2,3,4,5]}',
        [["notification", "update", (1, 2, 3, 4, 5)]],
    ),
    (b'{"jsonrpc": "2.0", "method": "foobar"}', [[Kind.IGNORED, NO_ID, None]]),
    (b'{"jsonrpc": "2.0", "method": "foobar", "id": "1"}', [failed(-32601, "1")]),
    (b'{"jsonrpc": "2.0", "method": "foobar, "params": "bar", "baz]\n', [PARSE_ERROR]),
    (b'{"jsonrpc": "2.0", "method": 1, "params": "bar"}', [INVALID_REQUEST]),
    (
        b'[{"jsonrpc": "2.0", "method": "sum", "params": [1,2,4], "id": "1"},{"jsonrpc": "2.0", "method" ]\n',
        [PARSE_ERROR],
    ),
    (
        b'[{"jsonrpc": "2.0", "method": "sum", "params": [1,2,4], "id": "1"},\n{"jsonrpc": "2.0", "method"\n]',
        [PARSE_ERROR, ["closed", 0, -32700]],
    ),
    (b"[]", [INVALID_REQUEST]),
    (b"[1]", [["batch", [INVALID_REQUEST]]]),
    (b"[1,2,3]", [["batch", [INVALID_REQUEST] * 3]]),
    (
        (
            b'[{"jsonrpc": "2.0", "method": "sum", "params": [1,2,4], "id": "1"},'
            b'{"jsonrpc": "2.0", "method": "notify_hello", "params": [7]},'
            b'{"jsonrpc": "2.0", "method": "subtract", "params": [42,23], "id": "2"},{"foo": "boo"},'
            b'{"jsonrpc": "2.0", "method": "foo.get", "params": {"name": "myself"}, "id": "5"},'
            b'{"jsonrpc": "2.0", "method": "get_data", "id": "9"}]'
        ),
        [
            [
                "batch",
                [
                    ["sum", "1", (1, 2, 4)],
                    ["notification", "notify_hello", (7,)],
                    ["subtract", "2", (42, 23)],
                    INVALID_REQUEST,
                    UNKNOWN,
                    ["get_data", "9", ()],
                ],
            ]
        ],
    ),
    (
        (
            b'[{"jsonrpc": "2.0", "method": "notify_sum", "params": [1,2,4]},'
            b'{"jsonrpc": "2.0", "method": "notify_hello", "params": [7]}]'
        ),
        [["batch", [[Kind.IGNORED, NO_ID, None], ["notification", "notify_hello", (7,)]]]],
    ),
]
WELL_FORMED = [(text, events) for text, events in EXAMPLES if PARSE_ERROR not in events]


@pytest.mark.parametrize(("text", "events"), EXAMPLES)
def test_example_of_the_specification(text: bytes, events: list[Any]) -> None:
    """Each example of section 7 gives what the specification says, with and without a line's end."""
    assert events_of(text) == events
    assert events_of(text + b"\n") == events
    assert events_of(text + b"\r\n") == events


@pytest.mark.parametrize("between", [b"", b"\n", b"\r\n", b" \t\r\n\n"])
def test_examples_follow_each_other(between: bytes) -> None:
    """Messages may stand on lines or touch each other; the order stays."""
    stream = between.join(text for text, _ in WELL_FORMED)
    assert events_of(stream) == [event for _, events in WELL_FORMED for event in events]


def test_examples_pretty_printed() -> None:
    """Messages may be spread over lines, with either line end."""
    events = [event for _, events in WELL_FORMED for event in events]
    pretty = b"".join(msgspec.json.format(text, indent=2) for text, _ in WELL_FORMED)
    assert events_of(pretty) == events
    assert events_of(pretty.replace(b"\n", b"\r\n")) == events


def test_malformed_examples_do_not_harm_their_neighbours() -> None:
    """A malformed message on a line of its own is answered, and the next line is read."""
    malformed = EXAMPLES[7][0]
    assert events_of(GOOD + b"\n" + malformed + GOOD + b"\n") == [CALLED, PARSE_ERROR, CALLED]


# ---- ids


@pytest.mark.parametrize(
    ("text", "call_id"),
    [
        (b"0", 0),
        (b"-1", -1),
        (b"1.5", 1.5),
        (b"1e2", 100.0),
        (b'""', ""),
        (b'"1"', "1"),
        (b'"\\u00fc\\""', 'ü"'),
        (b"null", None),
        (b"9007199254740993", 9007199254740993),
        (b"18446744073709551616", 2**64),
        (b"-" + b"9" * 40, -(10**40) + 1),
    ],
)
def test_id_comes_back_equal(text: bytes, call_id: Any) -> None:
    """An id of any kind is kept as it is, a huge number to its last digit, for calls, refusals and answers."""
    head = b'{"jsonrpc":"2.0","id":' + text + b',"method":'
    assert events_of(head + b'"get_data"}') == [["get_data", call_id, ()]]
    assert events_of(head + b'"nothing"}') == [failed(-32601, call_id)]
    assert events_of(head + b"1}") == [failed(-32600, call_id)]
    core = core_of()
    core.send((Kind.RESULT, call_id, b"5"))
    answer = b"".join(core.data_to_send())
    if len(text) < 20:
        assert msgspec.json.decode(answer) == {"jsonrpc": "2.0", "id": call_id, "result": 5}
    assert answer.endswith(b',"result":5}\n')


@pytest.mark.parametrize("text", [b"true", b"[]", b"{}", b"[1]", b'{"id":1}'])
def test_id_of_another_kind_is_refused(text: bytes) -> None:
    """An id is text, a number or null; the answer to another has none."""
    message = b'{"jsonrpc":"2.0","id":' + text + b',"method":"get_data"}'
    assert events_of(message) == [INVALID_REQUEST]
    assert events_of(b"[" + message + b"]") == [["batch", [INVALID_REQUEST]]]


@pytest.mark.parametrize("digits", [b"1" * 5_000, b"1e999", b"-1e999"])
def test_number_that_nobody_can_hold_is_refused(digits: bytes) -> None:
    """An integer of thousands of digits and a float beyond all floats are no JSON here, as id or parameter."""
    assert events_of(b'{"jsonrpc":"2.0","method":"get_data","id":' + digits + b"}") == [PARSE_ERROR]
    assert events_of(b'{"jsonrpc":"2.0","method":"anything","params":[' + digits + b'],"id":1}') == [PARSE_ERROR]


def test_integers_are_exact_or_refused() -> None:
    """A huge integer does not become a float."""
    (call,) = events_of(request(method="anything", params=[2**70], id=1).replace(b"null", b"1"))
    assert call == ["anything", 1, (2**70,)]
    assert type(call[2][0]) is int


# ---- envelopes


@pytest.mark.parametrize(
    "message",
    [
        b'{"method":"get_data","id":7}',
        b'{"jsonrpc":"1.0","method":"get_data","id":7}',
        b'{"jsonrpc":2.0,"method":"get_data","id":7}',
        b'{"jsonrpc":"2.0","id":7}',
        b'{"jsonrpc":"2.0","method":null,"id":7}',
        b'{"jsonrpc":"2.0","method":"get_data","params":null,"id":7}',
        b'{"jsonrpc":"2.0","method":"get_data","params":1,"id":7}',
        b'{"jsonrpc":"2.0","method":"get_data","params":"x","id":7}',
        b'{"jsonrpc":"2.0","result":5,"id":7}',
    ],
)
def test_object_that_is_no_request(message: bytes) -> None:
    """It is refused under its id."""
    assert events_of(message) == [failed(-32600, 7)]


def test_members_that_are_not_known_are_skipped() -> None:
    """More members, also null bytes' escapes and deep ones, change nothing."""
    extra = b',"meta":{"id":[2],"method":"x"},"\\u0000":"\\u0041"}'
    assert events_of(GOOD[:-1] + extra) == [CALLED]


def test_parameters_that_do_not_fit_are_given_as_builtins() -> None:
    """A call whose parameters do not fit comes with what was sent; a notification like it has no id."""
    assert events_of(request(method="subtract", params=[1, "2"], id=3)) == [["invalid", 3, "subtract", [1, "2"]]]
    assert events_of(request(method="subtract", params={"a": 1})) == [["invalid", NO_ID, "subtract", {"a": 1}]]
    assert events_of(request(method="subtract", id=None)) == [["invalid", None, "subtract", ()]]


ENVELOPES = {
    "jsonrpc": b'"2.0"',
    "method": b'"subtract"',
    "params": b"[42, 23]",
    "id": b"1",
}


def envelope(*extra: bytes, without: str = "") -> bytes:
    """A request with more members at its end, or without one."""
    members = [b'"' + name.encode() + b'":' + value for name, value in ENVELOPES.items() if name != without]
    return b"{" + b",".join([*members, *extra]) + b"}"


def twice(name: str, *, escaped: bool = False) -> bytes:
    """A request in which a member stands twice, the second time perhaps with an escape in its name."""
    key = b"\\u%04x" % ord(name[0]) + name[1:].encode() if escaped else name.encode()
    return envelope(b'"' + key + b'":' + ENVELOPES[name])


PARAMLESS = request(method="some", id=2)
NEIGHBOURS = {
    "nothing": b"",
    "a call": GOOD,
    "a notification": envelope(without="id"),
    "a call without params": PARAMLESS,
    "an empty batch": b"[]",
    "a batch of a notification": b"[" + envelope(without="id") + b"]",
}


@pytest.mark.parametrize("escaped", [False, True])
@pytest.mark.parametrize("name", ENVELOPES)
@pytest.mark.parametrize("neighbour", NEIGHBOURS)
def test_member_that_stands_twice_is_refused(name: str, escaped: bool, neighbour: str) -> None:
    """It is found before, after and between all kinds of other messages, in a read of several lines, escaped or not."""
    wrong, other = twice(name, escaped=escaped), NEIGHBOURS[neighbour]
    refused = failed(-32600, 1)
    for lines in ([wrong, other], [other, wrong], [other, wrong, other]):
        events = events_of(b"\n".join(lines) + b"\n")
        assert events.count(refused) == 1
        assert len(events) == len([line for line in lines if line])


@pytest.mark.parametrize("escaped", [False, True])
@pytest.mark.parametrize("name", ENVELOPES)
def test_member_that_stands_twice_inside_a_batch(name: str, escaped: bool) -> None:
    """It refuses the whole batch, whatever stands beside it."""
    wrong = twice(name, escaped=escaped)
    for other in (GOOD, envelope(without="id"), PARAMLESS, b"1"):
        for items in ((wrong,), (wrong, other), (other, wrong)):
            assert events_of(b"[" + b",".join(items) + b"]") == [INVALID_REQUEST]


@pytest.mark.parametrize(
    "value",
    [
        {"id": 1, "method": "x", "params": [], "jsonrpc": "2.0"},
        [{"id": 1}, {"id": 2}, "id", "method"],
        '"id":1,"id":2,"method":"method"',
        {"\\u0069d": "\u0000"},
    ],
)
def test_members_inside_parameters_are_not_counted(value: Any) -> None:
    """Parameters may hold the envelope's names and escapes, compact, pretty-printed and in a batch."""
    message = request(method="anything", params=[value], id=1)
    message = message.replace("é".encode(), b"\\u00e9")
    called = ["anything", 1, (value,)]
    assert events_of(message + b"\n") == [called]
    assert events_of(message + b"\n" + GOOD + b"\n") == [called, CALLED]
    assert events_of(msgspec.json.format(message)) == [called]
    assert events_of(b"[" + message + b"," + envelope(without="id") + b"]") == [
        ["batch", [called, ["notification", "subtract", (42, 23)]]]
    ]


def test_names_as_values() -> None:
    """An id or a parameter's name may be `id` or `method`."""
    assert events_of(request(method="some", params={"value": "id"}, id="id")) == [["some", "id", {"value": "id"}]]
    assert events_of(request(method="id", id="method")) == [failed(-32601, "method")]


# ---- texts that are no JSON


@pytest.mark.parametrize("name", YES)
def test_json_is_taken(name: str) -> None:
    """What RFC 8259 allows is read: as the parameter of a call, and as a message that is no request."""
    (event,) = events_of(b'{"jsonrpc":"2.0","method":"anything","params":[' + YES[name].strip() + b'],"id":1}')
    assert event[:2] == ["anything", 1]
    for event in events_of(YES[name]):
        assert PARSE_ERROR not in (event, *(event[1] if event[0] == "batch" else ()))


@pytest.mark.parametrize("name", NO)
def test_what_is_no_json_is_refused(name: str) -> None:
    """What RFC 8259 forbids is answered with -32700 and without an id; whatever brackets it has, nothing is run."""
    events = events_of(NO[name])
    assert PARSE_ERROR in events
    assert all(
        event in (PARSE_ERROR, INVALID_REQUEST, ["closed", 0, -32700]) or event[0] == "batch" for event in events
    )


@pytest.mark.parametrize("name", [name for name, text in NO.items() if len(text) < 1_000 and b"\n" not in text])
def test_a_malformed_line_is_over_at_its_end(name: str) -> None:
    """A malformed message on one line that ends there costs nothing but itself: the next line is read."""
    events = events_of(NO[name] + b"\n" + GOOD + b"\n")
    unclosed = NO[name].count(b"[") + NO[name].count(b"{") > NO[name].count(b"]") + NO[name].count(b"}")
    if unclosed and not name.startswith("string"):
        # Its end is still open, so the next line is taken as a part of it.
        assert events[-1][0] in ("closed", "failed")
    else:
        assert events[-1] == CALLED
        assert PARSE_ERROR in events


@pytest.mark.parametrize("member", [b'"\xff"', b'"\xed\xa0\x80"', b'"\\ud800"', b"NaN", b"01"])
def test_bad_values_are_found_where_nobody_looks(member: bytes) -> None:
    """A value that is no JSON is refused also in a member that is skipped, in a line among others, in a batch."""
    wrong = GOOD[:-1] + b',"skipped":' + member + b"}"
    assert events_of(wrong + b"\n") == [PARSE_ERROR]
    assert events_of(GOOD + b"\n" + wrong + b"\n" + GOOD + b"\n") == [CALLED, PARSE_ERROR, CALLED]
    assert events_of(b"[" + GOOD + b"," + wrong + b"]") == [PARSE_ERROR]


def test_deep_nesting_is_refused() -> None:
    """100,000 brackets are answered once, whole or in pieces; the line after them is read when they end."""
    bomb = b"[" * 100_000 + b"]" * 100_000 + b"\n"
    assert events_of(bomb + GOOD + b"\n") == [PARSE_ERROR, CALLED]
    core = core_of()
    for i in range(0, len(bomb), 1_000):
        core.receive_data(bomb[i : i + 1_000])
    core.receive_data(GOOD)
    assert [told(event) for event in core.next_events()] == [PARSE_ERROR, CALLED]


@pytest.mark.parametrize("text", [b'{"a": }', b"{]", b'{"a" "b"}', b"nonsense", b'["cut', b"[}"])
def test_malformed_message_of_one_line_skips_the_line(text: bytes) -> None:
    """What follows on the line is not run; the next line is."""
    rest = GOOD if text != b'{"a": }' else b""
    assert events_of(text + rest + b"\n" + GOOD + b"\n") == [PARSE_ERROR, CALLED]


@pytest.mark.parametrize("text", [b'{"a":\n]', b'{\n"a" "b"}', b'["a",\n"cut', b'{"a":1,\n"b":[}'])
def test_malformed_message_of_several_lines_closes(text: bytes) -> None:
    """Where the next message begins cannot be known, so nothing after it is run."""
    assert events_of(GOOD + text + b"\n" + GOOD + b"\n") == [CALLED, PARSE_ERROR, ["closed", 0, -32700]]


def test_malformed_message_with_paired_brackets_ends_there() -> None:
    """What is no JSON but ends well does not hide what follows on its line."""
    assert events_of(b'{"a": nul}' + GOOD) == [PARSE_ERROR, CALLED]


@pytest.mark.parametrize("text", [b"{a}", b"nonsense\n", b'{"a" "b"}\n', b"[1,]", b'{"x":"\xff"}'])
def test_sixteen_strikes(text: bytes) -> None:
    """The sixteenth malformed message closes the connection, in one read as well; good ones between do not help."""
    closed = ["closed", 0, -32700]
    assert events_of(text * 15 + GOOD) == [*[PARSE_ERROR] * 15, CALLED]
    assert events_of(text * 20 + GOOD) == [*[PARSE_ERROR] * MAX_STRIKES, closed]
    assert events_of((GOOD + text) * 20) == [*[CALLED, PARSE_ERROR] * MAX_STRIKES, closed]


def test_refusals_that_are_json_are_no_strikes() -> None:
    """Requests that are refused may come as often as they like."""
    assert events_of(b"{}" * 100) == [INVALID_REQUEST] * 100


def test_end_in_the_middle() -> None:
    """A message that is cut short is answered, white space and the rest of a refused line are not."""
    assert events_of(GOOD + b'{"jsonrpc"') == [CALLED, PARSE_ERROR]
    assert events_of(GOOD + b" \r\n") == [CALLED]
    assert events_of(b"nonsense") == [PARSE_ERROR]
    assert events_of(b'{"jsonrpc"', eof=False) == []


# ---- batches


def test_batch_over_its_cap() -> None:
    """A batch of as many as are allowed is run, one more is answered once, sound or not; the connection goes on."""
    three = [GOOD] * 3
    assert events_of(b"[" + b",".join(three) + b"]", max_batch=3) == [["batch", [CALLED] * 3]]
    for extra in (GOOD, b"1", envelope(without="id")):
        stream = b"[" + b",".join([*three, extra]) + b"]" + GOOD
        assert events_of(stream, max_batch=3) == [failed(-32004), CALLED]


def test_large_batch_of_rubbish() -> None:
    """Millions of bytes of rubbish in a batch are answered by one error."""
    assert events_of(b"[" + b"1," * 1_000_000 + b"1]") == [failed(-32004)]


def test_batch_inside_a_batch_is_rubbish() -> None:
    """An item of a batch is an object."""
    assert events_of(b"[[" + GOOD + b"]," + GOOD + b"]") == [["batch", [INVALID_REQUEST, CALLED]]]
    assert events_of(b"[[],1]") == [["batch", [INVALID_REQUEST] * 2]]


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("exact", b"0.12345678901234567890123", Decimal("0.12345678901234567890123")),
        ("table", b'{"7":"x"}', {7: "x"}),
    ],
)
def test_calls_beside_rubbish_are_read_as_alone(name: str, text: bytes, value: Any) -> None:
    """A bad item changes nothing for the good ones: digits stay, keys of a map are what they are declared."""
    call = b'{"jsonrpc":"2.0","method":"' + name.encode() + b'","params":[' + text + b'],"id":1}'
    called = [name, 1, (value,)]
    assert events_of(call) == [called]
    assert events_of(b"[" + call + b",1]") == [["batch", [called, INVALID_REQUEST]]]
    escaped = call[:-1] + b',\n"note":"\\u0041"}'
    assert events_of(escaped) == [called]


# ---- size


@pytest.mark.parametrize("eof", [False, True])
def test_message_over_its_cap_closes(eof: bool) -> None:
    """A message of the largest size is run, one byte more closes the connection, however it comes."""
    size = len(GOOD)
    assert events_of(b"  " + GOOD + b"\r\n \r\n" + GOOD, max_size=size, eof=eof) == [CALLED] * 2
    over = [failed(-32004), ["closed", 0, -32004]]
    assert events_of(GOOD.replace(b"23", b" 23") + GOOD, max_size=size, eof=eof) == over
    assert events_of(GOOD + b'["' + b"x" * size, max_size=size, eof=eof) == [CALLED, *over]


def test_error_beyond_the_cap_is_the_cap() -> None:
    """A message that is malformed after its largest size is too large, in one read as well as byte by byte."""
    assert events_of(b'["' + b"x" * 50 + b'" 1 "', max_size=50) == [failed(-32004), ["closed", 0, -32004]]
    assert events_of(b'["' + b"x" * 40 + b'" 1 "', max_size=50) == [PARSE_ERROR]


def test_many_messages_may_be_larger_than_one() -> None:
    """The cap is for each message, not for what comes at once."""
    assert events_of(GOOD * 50, max_size=len(GOOD)) == [CALLED] * 50


# ---- contracts and odd types


def test_service_without_procedures() -> None:
    """Every call is unknown, even one that is named like nothing else."""
    contract = Contract([])
    for name in ("rpc.", "rpc.discover", "", "sum"):
        core = JsonRpcCore(contract)
        core.receive_data(request(method=name, params=[], id=1) + b"\n")
        assert [told(event) for event in core.next_events()] == [failed(-32601, 1)]
    contract.add(describe(get_data))
    core = JsonRpcCore(contract)
    core.receive_data(b" \n" + request(method="get_data", id=1))
    assert [event[1] for event in core.next_events()] == [1]


def test_procedure_that_joins_while_cores_run() -> None:
    """A core knows a new procedure from its next read on."""
    contract = Contract([describe(get_data)])
    core = JsonRpcCore(contract)
    call = request(method="sum", params=[1, 2, 3], id=1)
    core.receive_data(call)
    contract.add(describe(sum))
    core.receive_data(call)
    refused, called = core.next_events()
    assert refused[0] == Kind.FAILED
    assert called[0] is contract.keys["sum"]


def test_unknown_name_is_quoted_in_short() -> None:
    """The answer to an unknown name is not as long as the name."""
    core = core_of()
    core.receive_data(request(method="x" * 1_000, id=1))
    ((_, _, error),) = core.next_events()
    assert error.message == "no procedure is named '" + "x" * 64 + "…'"


@pytest.mark.parametrize("text", [b'"odd","params":["x"]', b'"picky","params":[{"value":13}]'])
def test_types_that_raise_anything_do_not_harm_the_core(text: bytes) -> None:
    """What a user's class raises while it is made leaves a call that does not fit, and its neighbours run."""
    wrong = b'{"jsonrpc":"2.0","id":5,"method":' + text + b"}"
    lines = events_of(GOOD + b"\n" + wrong + b"\n" + GOOD + b"\n")
    assert [event[:2] for event in lines] == [["subtract", 1], ["invalid", 5], ["subtract", 1]]
    ((_, items),) = events_of(b"[" + wrong + b"," + GOOD + b"]")
    assert [item[:2] for item in items] == [["invalid", 5], ["subtract", 1]]


# ---- answers


class Sink:
    """Where the fast lanes put their answers; large ones are refused."""

    def __init__(self) -> None:
        self.out: list[bytes] = []

    def check_size(self, size: int) -> None:
        if size > 5_000:
            raise ResourceExhausted("too large")


def test_results_and_errors_are_lines() -> None:
    """An answer is one line; the id of one that has none is null."""
    core = core_of()
    core.send((Kind.RESULT, "a", b"[1]"))
    core.send((Kind.ERROR, NO_ID, b'{"code":1}'))
    core.send((Kind.PING, 1, b""))
    assert b"".join(core.data_to_send()) == (
        b'{"jsonrpc":"2.0","id":"a","result":[1]}\n{"jsonrpc":"2.0","id":null,"error":{"code":1}}\n'
    )
    assert not core.data_to_send()


def test_answers_of_a_batch_are_one_array() -> None:
    """The answers of a batch travel as one line, whatever text stands in them."""
    sink = Sink()
    answer = answer_with(msgspec.json.encode)
    values = [1, "}\n{", {"a": "}\n"}]
    for call_id, value in enumerate(values):
        answer(sink, call_id, value)
    answer_error(sink, NO_ID, NotFound("no"))
    core = core_of()
    core.send((Kind.BATCH, None, sink.out))
    line = b"".join(core.data_to_send())
    assert line.count(b"\n") == 1
    *results, error = msgspec.json.decode(line)
    assert [item["result"] for item in results] == values
    assert error == {"jsonrpc": "2.0", "id": None, "error": {"code": -32007, "message": "no"}}


def test_fast_lanes_say_what_send_says() -> None:
    """A result that is answered in one piece is the line that `send` writes, by position and by name."""
    core = core_of()
    core.receive_data(GOOD + request(method="subtract", params={"minuend": 42, "subtrahend": 23}, id=1))
    handle = inline_with(
        params_of, msgspec.json.encode, lambda _payload, error: error, lambda a, b: "x" * LARGE * (a - b)
    )
    for _, call_id, message in core.next_events():
        sink = Sink()
        handle(call_id, message, sink)
        core.send((Kind.RESULT, 1, msgspec.json.encode("x" * LARGE * 19)))
        assert sink.out == core.data_to_send()


def test_inline_call_that_does_not_fit_is_explained() -> None:
    """Parameters that are refused raise what `explain` makes of them."""

    def refuse(_: Any) -> Any:
        raise ValueError("too deep")

    handle = inline_with(refuse, msgspec.json.encode, lambda _, error: InvalidParams(str(error)), lambda: 1 / 0)
    with pytest.raises(InvalidParams, match="too deep"):
        handle(1, None, Sink())


def answered(error: Any) -> ErrorBody:
    """The error that arrives."""
    sink = Sink()
    answer_error(sink, 1, error)
    return msgspec.convert(msgspec.json.decode(b"".join(sink.out))["error"], ErrorBody)


@pytest.mark.parametrize(
    ("error", "arrives"),
    [
        (NotFound("no", data={"a": [1]}), ErrorBody(-32007, "no", {"a": [1]})),
        (NotFound("no", data=object()), ErrorBody(-32007, "no")),
        (NotFound("no", data=Odd()), ErrorBody(-32007, "no")),
        (NotFound("no", data="x" * 6_000), ErrorBody(-32007, "no")),
        (NotFound("no", data="\ud800"), ErrorBody(-32007, "no")),
        (NotFound("no file \udcff"), ErrorBody(-32007, "no file ?")),
        (NotFound("x" * 6_000), ErrorBody(-32007, "x" * 1_000)),
    ],
)
def test_error_arrives_whatever_its_data(error: Any, arrives: ErrorBody) -> None:
    """An error is always answered: without its data, or with a plain text, when they cannot travel."""
    assert answered(error) == arrives


def test_repr_shows_the_state() -> None:
    """A core in the debugger says where it stands."""
    core = core_of()
    core.receive_data(b'  {"a"')
    assert repr(core) == "<JsonRpcCore open, 4 bytes wait>"
    assert core.waiting == 4
    core.receive_data(b"\n]")
    assert repr(core) == "<JsonRpcCore closed, 0 bytes wait>"


def test_every_kind_of_neighbour_is_sound_by_itself() -> None:
    """The neighbours of the tests above are no refusals of their own, but the empty batch."""
    for first, second in itertools.permutations(NEIGHBOURS.values(), 2):
        events = events_of(first + b"\n" + second + b"\n")
        assert [event for event in events if event[0] == "failed"] == [INVALID_REQUEST] * (b"[]" in (first, second))
