"""One run of one rival's driver, in a process of its own.

`python -m benchmarks.drive RIVAL LOAD_AS_JSON` prints the figures as JSON.
"""

from __future__ import annotations

import dataclasses
import json
import sys

from benchmarks import rivals
from benchmarks.load import Load


def main() -> None:
    """Drive, and print the figures as one line of JSON."""
    load = Load(**json.loads(sys.argv[2]))
    print(json.dumps(dataclasses.asdict(rivals.find(sys.argv[1]).drive(load))))


if __name__ == "__main__":
    main()
