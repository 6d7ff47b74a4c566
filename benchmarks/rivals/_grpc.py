"""What both gRPC rivals share: the messages, built in code (no generated files), and the asyncio client."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from benchmarks.load import HOST, Figures, Load, concurrent
from benchmarks.rivals import missing_packages, package_versions

PACKAGES = ("grpcio", "protobuf", "uvloop")
METHOD = "/bench.Calculator/Sum"


def missing() -> str | None:
    """Return why gRPC cannot run here, or None."""
    return missing_packages(*PACKAGES)


def versions() -> dict[str, str]:
    """Return the version of everything whose speed is measured."""
    return package_versions(*PACKAGES)


def messages() -> tuple[Any, Any]:
    """Return the message classes `Pair {int64 a = 1; int64 b = 2}` and `Total {int64 value = 1}`."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="bench.proto", package="bench", syntax="proto3")
    for name, fields in (("Pair", ("a", "b")), ("Total", ("value",))):
        message = file.message_type.add(name=name)
        for number, field in enumerate(fields, start=1):
            kind = descriptor_pb2.FieldDescriptorProto
            message.field.add(name=field, number=number, type=kind.TYPE_INT64, label=kind.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    pair, total = (pool.FindMessageTypeByName(f"bench.{name}") for name in ("Pair", "Total"))
    return message_factory.GetMessageClass(pair), message_factory.GetMessageClass(total)


def handlers(add: Callable[[Any, Any], Any]) -> Any:
    """Return the service with its one method, for either kind of server."""
    import grpc

    pair, total = messages()
    method = grpc.unary_unary_rpc_method_handler(
        add, request_deserializer=pair.FromString, response_serializer=total.SerializeToString
    )
    return grpc.method_handlers_generic_handler("bench.Calculator", {"Sum": method})


def drive(load: Load) -> Figures:
    """Call with the asyncio client: a channel (and a connection) for each connection asked for."""
    import uvloop

    return uvloop.run(_drive(load))


async def _drive(load: Load) -> Figures:
    import grpc

    pair, total = messages()
    request, expected = pair(a=2, b=3), total(value=5)
    options = [("grpc.use_local_subchannel_pool", 1)]  # else all channels share one connection
    channels = [grpc.aio.insecure_channel(f"{HOST}:{load.port}", options) for _ in range(load.connections)]
    try:
        stubs = [
            channel.unary_unary(
                METHOD, request_serializer=pair.SerializeToString, response_deserializer=total.FromString
            )
            for channel in channels
        ]
        calls = [functools.partial(stub, request) for stub in stubs]
        return await concurrent(load, calls, expected, "grpc.aio client")
    finally:
        for channel in channels:
            await channel.close()
