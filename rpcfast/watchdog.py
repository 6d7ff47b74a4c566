"""Says which function blocks the event loop, while it does; floor 4: looks on from a thread, touches nothing.

A call pays nothing for it. The thread wakes 50 times a second, and wakes the loop only when calls came in.
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
from typing import Any, Final

from rpcfast.schema import ProcedureSpec

__all__ = ["Watchdog"]

logger = logging.getLogger("rpcfast")

THRESHOLD: Final = 0.1
"""Seconds without a turn of the loop that are reported."""
INTERVAL: Final = 0.02
STACK_SIZE: Final = 256 * 1024


class Watchdog:
    """Watches the running loop until `stop`. `activity()` is a number that changes whenever calls arrive."""

    def __init__(self, procedures: Mapping[str, ProcedureSpec], activity: Callable[[], int]) -> None:
        self._procedures = procedures
        self._activity = activity
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._stopped = threading.Event()
        self._answered = threading.Event()
        self._reported: set[str] = set()
        self._thread = threading.Thread(target=self._watch, name="rpcfast-watchdog", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """Stop watching; does not wait for the thread, which ends within its interval."""
        self._stopped.set()
        self._answered.set()

    def _watch(self) -> None:
        seen = -1
        while not self._stopped.wait(INTERVAL):
            active = self._activity()
            if active == seen and not self._running():
                continue
            seen = active
            self._probe()

    def _running(self) -> bool:
        """Whether the loop's thread is inside one of our procedures right now."""
        return self._culprit() is not None

    def _probe(self) -> None:
        """Ask the loop for a sign of life; look at its stack when none comes."""
        self._answered.clear()
        asked = monotonic()
        try:
            self._loop.call_soon_threadsafe(self._answered.set)
        except RuntimeError:  # the loop is closed
            self._stopped.set()
            return
        if self._answered.wait(THRESHOLD):
            return
        found = self._culprit()
        while not self._answered.wait(INTERVAL) and found is None and not self._stopped.is_set():
            found = self._culprit()
        if found is not None:
            self._report(*found, monotonic() - asked)

    def _culprit(self) -> tuple[str, FrameType] | None:
        codes = {code: name for name, spec in list(self._procedures.items()) if (code := _code_of(spec.function))}
        frame: FrameType | None = sys._current_frames().get(self._loop_thread)  # noqa: SLF001  # the documented way
        innermost = frame
        while frame is not None:
            if innermost is not None and frame.f_code in codes:
                return codes[frame.f_code], innermost
            frame = frame.f_back
        return None

    def _report(self, name: str, frame: FrameType, seconds: float) -> None:
        if name in self._reported:
            return
        self._reported.add(name)
        advice = "" if inspect.iscoroutinefunction(self._procedures[name].function) else ": serve it with thread=True"
        logger.warning(
            "%s blocks the event loop (%d ms so far, at %s:%d); nothing else is served meanwhile%s",
            name,
            seconds * 1000,
            frame.f_code.co_filename,
            frame.f_lineno,
            advice or ": make it await, or serve a plain function with thread=True",
        )


def _code_of(function: Callable[..., Any]) -> CodeType | None:
    function = inspect.unwrap(function)
    return getattr(function, "__code__", None) or getattr(getattr(function, "__func__", None), "__code__", None)
