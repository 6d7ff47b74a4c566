"""The quick start: three typed functions, served to everyone. Run it with `rpcfast serve examples/quickstart.py`."""

from pathlib import Path

from rpcfast import Server

server = Server("quickstart")


@server
def sum(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server(name="text.upper", readonly=True, timeout=2.0)
async def upper(text: str) -> str:
    """Write a text in capitals."""
    return text.upper()


@server(thread=True)
def count_lines(path: str) -> int:
    """Count the lines of a file on the server; reading blocks, so it runs in a thread."""
    return len(Path(path).read_text(encoding="utf-8").splitlines())


if __name__ == "__main__":
    server.run()
