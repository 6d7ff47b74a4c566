"""A codec of one's own: CBOR, by the cbor2 package. Both sides register it, the client asks for it by name."""

from collections.abc import Callable
from typing import Any

import cbor2
import msgspec

from rpcfast import Client, Server, register_codec


class CborCodec:
    """cbor2 moves the bytes; msgspec checks the types, as it does for every codec."""

    def bind(self, kind: Any, /) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
        """Called once for each type; gives its encoder and decoder."""

        def encode(value: Any) -> bytes:
            return cbor2.dumps(msgspec.to_builtins(value, builtin_types=(bytes,)))

        def decode(data: bytes) -> Any:
            return msgspec.convert(cbor2.loads(data), kind, builtin_types=(bytes,))

        return encode, decode


register_codec("cbor", CborCodec())
server = Server("cbor")


@server
def sum(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


if __name__ == "__main__":
    with Client(server, codec="cbor") as client:  # in this process; over tcp:// it is the same
        print(client.sum(2, 3))
