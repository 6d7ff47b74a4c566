"""The C engine: compiles load.c with the machine's `cc` and calls it. Holds no loop of its own."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from socket import socket

from benchmarks.wire import Tally, Wire

NAME = "C epoll"


class _Wire(ctypes.Structure):
    _fields_ = (
        ("request", ctypes.c_char_p),
        ("answer", ctypes.c_char_p),
        ("mask", ctypes.c_char_p),
        ("request_size", ctypes.c_uint64),
        ("answer_size", ctypes.c_uint64),
        ("request_id_at", ctypes.c_int64),
        ("answer_id_at", ctypes.c_int64),
    )


class _Tally(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("calls", "wrong", "nanoseconds", "p50", "p99"))


def available() -> bool:
    """Tell whether there is a C compiler."""
    return shutil.which("cc") is not None


def build(source: Path, *options: str) -> Path:
    """Compile a C file, or find it compiled before; raises CalledProcessError with the compiler's words on stderr."""
    key = hashlib.sha256(source.read_bytes() + repr(options).encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / "rpcfast-benchmarks"
    target = folder / f"{source.stem}-{key}"
    if not target.exists():
        folder.mkdir(exist_ok=True)
        partial = Path(tempfile.mkdtemp(dir=folder)) / target.name
        subprocess.run(["cc", "-O3", *options, "-o", partial, source], check=True)
        partial.rename(target)  # whole or not at all: two processes may compile at once
        partial.parent.rmdir()
    return target


@functools.cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(build(Path(__file__).with_name("load.c"), "-shared", "-fPIC")))
    library.load_run.restype = ctypes.c_uint64
    return library


def run(sockets: Sequence[socket], ids: list[int], wire: Wire, depth: int, seconds: float) -> Tally:
    """Drive the connections for some seconds, `depth` calls in flight on each; moves `ids` on to each one's next id."""
    count = len(sockets)
    numbers = (ctypes.c_int * count)(*(sock.fileno() for sock in sockets))
    next_ids = (ctypes.c_uint64 * count)(*ids)
    tally = _Tally()
    spec = _Wire(
        *(wire.request, wire.answer, wire.mask, len(wire.request), len(wire.answer)),
        *(-1 if at is None else at for at in (wire.request_id_at, wire.answer_id_at)),
    )
    missing = _library().load_run(
        numbers,
        next_ids,
        ctypes.c_int(count),
        ctypes.c_uint64(depth),
        ctypes.byref(spec),
        ctypes.c_uint64(int(seconds * 1e9)),
        ctypes.byref(tally),
    )
    ids[:] = next_ids
    return Tally(tally.calls, tally.wrong + missing, tally.nanoseconds, tally.p50, tally.p99)
