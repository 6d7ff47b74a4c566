"""A client of native frames written from docs/protocol.md alone: `struct` and `socket`, nothing of rpcfast."""

import socket
import struct

CALL, NOTIFICATION, RESULT, ERROR, CANCEL, PING, PONG, GOING_AWAY, HELLO = 1, 2, 3, 4, 7, 9, 10, 11, 12
TIMEOUT = 0x01


def pack(value):
    """MessagePack of small integers, text and arrays: as much as the calls here need."""
    if isinstance(value, int):
        return struct.pack(">Bq", 0xD3, value)
    if isinstance(value, str):
        return struct.pack(">BI", 0xDB, len(value.encode())) + value.encode()
    return struct.pack(">BI", 0xDD, len(value)) + b"".join(map(pack, value))


def unpack(data):
    """(value, rest): what answers here are made of. A map is a list of its keys and values in turn."""
    code, rest = data[0], data[1:]
    if code <= 0x7F or code >= 0xE0:
        return (code if code <= 0x7F else code - 256), rest
    if 0xCC <= code <= 0xD3:
        form = ">" + "BHIQbhiq"[code - 0xCC]
        return struct.unpack_from(form, rest)[0], rest[struct.calcsize(form) :]
    if 0xA0 <= code <= 0xBF or code == 0xD9:
        size, rest = (code & 0x1F, rest) if code != 0xD9 else (rest[0], rest[1:])
        return rest[:size].decode(), rest[size:]
    items = []
    for _ in range((code & 0x0F) * (2 if code < 0x90 else 1)):
        item, rest = unpack(rest)
        items.append(item)
    return items, rest


def frame(kind, call_id, name=b"", body=b"", timeout=None):
    """One frame; `timeout` in seconds."""
    extra = b"" if timeout is None else struct.pack(">Q", int(timeout * 1e6))
    flags, size = (TIMEOUT if extra else 0), len(extra) + len(name) + len(body)
    return struct.pack(">IQBBH", size, call_id, kind, flags, len(name)) + extra + name + body


class Client:
    """One connection; calls one after the other."""

    def __init__(self, host, port):
        self.socket = socket.create_connection((host, port), timeout=10)
        self.read = self.socket.makefile("rb").read
        self.socket.sendall(bytes.fromhex("f5 72 70 63 01"))
        assert self.read(5) == bytes.fromhex("f5 72 70 63 01")
        self.last_id = 0

    def receive(self):
        """(kind, id, body) of the next frame."""
        size, call_id, kind, _flags, _name_size = struct.unpack(">IQBBH", self.read(16))
        return kind, call_id, self.read(size)

    def call(self, name, *params, timeout=None):
        """The answer as (kind, value)."""
        self.last_id += 1
        self.socket.sendall(frame(CALL, self.last_id, name.encode(), pack(params), timeout))
        while True:
            kind, call_id, body = self.receive()
            if kind in (RESULT, ERROR) and call_id == self.last_id:
                return kind, unpack(body)[0]
