"""What the command writes to the standard error while it serves: log records as text, or as JSON, one a line."""

from __future__ import annotations

import logging
import sys
import time
from typing import Final, Literal

import msgspec

from rpcfast.server import Server, announce

__all__ = ["Format", "Level", "announce_as", "configure"]

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["text", "json"]

TEXT: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


class JsonFormatter(logging.Formatter):
    """One JSON object a record: time (UTC, ISO 8601), level, logger, message, and the traceback as `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter.format`."""
        fields = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(fields).decode()


def configure(level: Level, style: Format) -> None:
    """Write records of `level` and above to the standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else logging.Formatter(TEXT))
    logging.basicConfig(handlers=[handler], level=level.upper())
    logging.getLogger("rpcfast").setLevel(level.upper())


def announce_as(style: Format, server: Server) -> None:
    """Say what is served where, in the style of the log; whatever its level, since scripts wait for this line."""
    if style == "text" or not server.addresses:
        announce(server)
        return
    text = f"{server.name}: {len(server.procedures)} procedures on {', '.join(server.addresses)}"
    record = logging.LogRecord("rpcfast", logging.INFO, __file__, 0, text, None, None)
    print(JsonFormatter().format(record), file=sys.stderr, flush=True)
