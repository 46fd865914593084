"""Starts a program by a zygote, stops it, says its process id, and waits to be killed."""

import signal

from jflow.testing import ProgramProcess, Zygote

with (
    Zygote(["tests.programs.echo"]) as zygote,
    ProgramProcess(["-m", "tests.programs.echo", "x"], zygote=zygote) as program,
):
    program.pause()
    print(program.pid, flush=True)
    signal.pause()
