"""Ways for bytes: sockets, pipes, memory. Each gives an asyncio transport, or a blocking socket; none knows a protocol."""
