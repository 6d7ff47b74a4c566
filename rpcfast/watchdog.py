"""Says which function blocks the event loop, while it does; floor 4: looks on from a thread, touches nothing.

A call pays nothing for it. The thread wakes 50 times a second, and the loop only when it finds a procedure running.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
import threading
from collections.abc import Callable, Mapping
from time import monotonic
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

from rpcfast.schema import ProcedureSpec

__all__ = ["Watchdog"]

logger = logging.getLogger("rpcfast")

THRESHOLD: Final = 0.1
"""Seconds without a turn of the loop that are reported."""
INTERVAL: Final = 0.02


class Sighting(NamedTuple):
    """A procedure that was seen running: `frame` is this one run of it, `innermost` the line it was at."""

    name: str
    frame: FrameType
    innermost: FrameType


class Watchdog:
    """Watches the running loop from `start` to `stop`."""

    def __init__(self, procedures: Mapping[str, ProcedureSpec]) -> None:
        self._procedures = procedures
        self._names: dict[CodeType, str] = {}
        self._known = 0
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._stopped = threading.Event()
        self._reported: set[str] = set()
        self._thread = threading.Thread(target=self._watch, name="rpcfast-watchdog", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """Stop watching; does not wait for the thread, which ends within `THRESHOLD`."""
        self._stopped.set()

    def _watch(self) -> None:
        while not self._stopped.wait(INTERVAL):
            seen = self._running()
            if seen is not None and seen.name not in self._reported:
                self._probe(seen)

    def _probe(self, first: Sighting) -> None:
        """Ask the loop for a sign of life; without one, report the procedure if it is still in the same run.

        Only both together are proof: a turn of the loop may be long because of many short calls, and a coroutine
        may be found running at every look though it waits in between.
        """
        answered = threading.Event()
        asked = monotonic()
        try:
            self._loop.call_soon_threadsafe(answered.set)
        except RuntimeError:  # the loop is closed
            self._stopped.set()
            return
        if answered.wait(THRESHOLD):
            return
        now = self._running()
        if now is not None and now.frame is first.frame and not answered.is_set():
            self._report(now, monotonic() - asked)

    def _running(self) -> Sighting | None:
        """The procedure that the loop's thread is in: the outermost one, which holds the loop, whatever it calls."""
        innermost = frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001  # the documented way
        found: Sighting | None = None
        names = self._codes()
        while frame is not None and innermost is not None:
            name = names.get(frame.f_code)
            if name is not None:
                found = Sighting(name, frame, innermost)
            frame = frame.f_back
        return found

    def _codes(self) -> dict[CodeType, str]:
        """The name of the procedure behind each code, made anew when there are more of them."""
        if self._known != len(self._procedures):
            specs = list(self._procedures.items())
            self._names = {code: name for name, spec in specs if (code := code_of(spec.function)) is not None}
            self._known = len(specs)
        return self._names

    def _report(self, seen: Sighting, seconds: float) -> None:
        self._reported.add(seen.name)
        is_async = inspect.iscoroutinefunction(self._procedures[seen.name].function)
        logger.warning(
            "%s blocks the event loop (%d ms so far, at %s:%d); nothing else is served meanwhile: %s",
            seen.name,
            seconds * 1000,
            seen.innermost.f_code.co_filename,
            seen.innermost.f_lineno,
            "make it await, or serve a plain function with thread=True" if is_async else "serve it with thread=True",
        )


def code_of(function: Callable[..., Any]) -> CodeType | None:
    """The code that runs when `function` is called; None for what is not written in Python."""
    function = inspect.unwrap(function)
    if not hasattr(function, "__code__"):
        function = getattr(function, "func", function)  # functools.partial
    if not hasattr(function, "__code__"):
        function = getattr(type(function), "__call__", function)  # noqa: B004  # the method itself, not whether there is one
    code = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) else None
