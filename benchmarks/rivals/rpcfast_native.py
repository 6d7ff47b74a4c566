"""rpcfast by native frames, replayed as bytes: the server alone is measured. `procedure`: `sum` or `sum_async`."""

from __future__ import annotations

from benchmarks.load import Figures, Load, replay
from benchmarks.rivals import _native, _rpcfast

NAME = "rpcfast native"
SETTINGS = f"{_rpcfast.SERVER}; native frames, parameters by position"

missing, versions, command = _rpcfast.missing, _rpcfast.versions, _rpcfast.command


def drive(load: Load) -> Figures:
    """Replay one call, its ids growing."""
    return replay(load, _native.wire(load.procedure))
