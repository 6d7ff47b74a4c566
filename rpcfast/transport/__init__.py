"""Ways for bytes: sockets, pipes, memory. Each gives an asyncio transport or a socket; none knows a protocol."""
