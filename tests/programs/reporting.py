"""`reporting.py MODULE ARGUMENTS`: `python -m MODULE ARGUMENTS` that prints what it has imported.

It prints the names of the modules as JSON, on one line, whenever it gets SIGUSR1.
"""

import json
import runpy
import signal
import sys
from types import FrameType


def report(_: int, __: FrameType | None) -> None:
    print(json.dumps(sorted(sys.modules)), flush=True)


signal.signal(signal.SIGUSR1, report)
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
