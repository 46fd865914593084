"""A program that is killed at a failpoint of a save, again and again.

For each line `FAILPOINT PREFIX SAVE VALUE` on its standard input it forks a child, which saves and
is killed at the failpoint; the answer is the signal that ended the child. The children do nothing
but write files, so they need neither the threads of JAX nor a start of Python each.
"""

from __future__ import annotations

import os
import sys
import warnings

from jflow.testing import Kill, failpoints
from tests.state.checkpoint.saving import save_value


def main() -> None:
    """Answers each line."""
    # JAX and Python warn of forks in general; see above.
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        name, prefix, save, value = line.split()
        child = os.fork()
        if not child:
            try:
                with failpoints({name: Kill()}):
                    save_value(prefix, float(value), save)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        print(os.WTERMSIG(status) if os.WIFSIGNALED(status) else "alive", flush=True)


main()
