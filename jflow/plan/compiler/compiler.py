"""`Compiler`: compiles programs in separate processes, and loads what they have made.

What such a process answers is loaded as code of this one: JAX unpickles it, and it is machine code.
So it is taken from nowhere else than the socket of a process that this one has started, which no
other process can open, and never from the wire or a file.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import jax
from jax.experimental import serialize_executable

from jflow.base import forks
from jflow.base.machine import n_cores
from jflow.errors import DeadlineExceededError, InternalError
from jflow.plan.apart.messages import ApartMessage, MessageKind
from jflow.plan.apart.process import ApartEndedError, ApartJob, ApartProcess
from jflow.plan.apart.queue import ApartQueue
from jflow.plan.compiler.requests import encoded, warming
from jflow.plan.compiler.work import NOT_SERIALIZABLE
from jflow.plan.xla import internals
from jflow.plan.xla.compilation import CompileRequest, compile_here
from jflow.plan.xla.hardware import devices_of

JOB = ApartJob("jflow.plan.compiler.work", "compiles programs", 4 << 30, keeps_stderr=True)

_N_PROCESSES = 8
_N_TRIES = 3
"""How many processes may end in turn before they have begun with a program."""
_N_REFUSED = 1024
_N_DIGITS = 12
_LONG_S = 600.0
"""How long a program may be compiled while others wait for a process, in seconds."""


@forks.guarded("start", "compile", ignored=("stop", "close"))
class Compiler:
    """Compiles programs for CPUs in separate processes; thread-safe.

    A program that ends the process is refused from then on, by the same words; others are not
    affected. What such a process cannot compile is compiled in this process: what is not for a CPU,
    has shardings that are not by axes, or an executable that JAX cannot serialize.

    The first process is started with the first server of this process, or the first program, and
    again if it has ended. Others are started where programs wait for it, up to the number of
    processors, and 8.
    """

    def __init__(self) -> None:
        self._queue = ApartQueue("compiler", lambda: ApartProcess(JOB), _n_most)
        self._lock = threading.Lock()
        self._refused: OrderedDict[str, str] = OrderedDict()

    @property
    def pids(self) -> list[int]:
        """The ids of the processes."""
        return self._queue.pids

    def start(self) -> None:
        """Starts a process in the background, once JAX has devices here; see `stop`."""
        self._queue.start()
        self._queue.put(_warm)

    def fork(self) -> None:
        """Forks the first process from this one, which has imported JAX but started nothing.

        See `Validator.fork`.
        """
        self._queue.adopt(ApartProcess(JOB, forks=True))

    def stop(self) -> None:
        """Undoes one call of `start`; after the last one, processes end when they are idle."""
        self._queue.stop()

    def close(self) -> None:
        """Ends the processes for good; pending calls fail."""
        self._queue.close()

    def compile(self, request: CompileRequest) -> Any:
        """Compiles a program; see `Compile`.

        Raises:
          InternalError: if the process has ended while it compiled the program, now or earlier; or
            could not be started.
          DeadlineExceededError: if it took more than 10 minutes while others waited.
          ValueError: if JAX or XLA refuses the program.
        """
        data = encoded(request)
        if data is None:
            return compile_here(request)
        valid = request.valid
        digest = valid.digest or hashlib.sha256(valid.data).hexdigest()
        with self._lock:
            if digest in self._refused:
                raise InternalError(self._refused[digest])
        named = f"the program {digest[:_N_DIGITS]} of {len(valid.data)} bytes for {request.on}"
        try:
            reply = self._queue.put(lambda process: self._reply(process, data, named)).result()
        except _CrashedError as error:
            raise InternalError(self._refuse(digest, str(error))) from None
        if reply.kind is MessageKind.DONE:
            return _loaded(reply.data, request)
        if reply.flags & NOT_SERIALIZABLE:
            return compile_here(request)
        raise ValueError(reply.data.decode())

    def _reply(self, process: Callable[[], ApartProcess], data: bytes, named: str) -> ApartMessage:
        """Has a program compiled, on the thread of a process."""
        begun = time.monotonic()

        def gives_up() -> bool:
            return self._queue.n_waiting > 0 and time.monotonic() - begun > _LONG_S

        how = ""
        for _ in range(_N_TRIES):
            try:
                return process().ask(data, gives_up=gives_up)
            except TimeoutError:
                raise DeadlineExceededError(
                    f"XLA has compiled {named} for {_LONG_S:g} s, and other programs wait; make a "
                    "smaller program of the operation, or give the task more processors"
                ) from None
            except ApartEndedError as ended:
                how = ended.how
                if ended.has_begun:
                    raise _CrashedError(
                        f"the process that compiles programs ended with {how} while it compiled "
                        f"{named}, which this task refuses until it is started again; what XLA has "
                        "said is in the log of the task. Write the operation in another way, or "
                        "report it with that"
                    ) from None
        raise InternalError(
            f"{_N_TRIES} processes in turn that compile programs have ended, the last with {how}, "
            f"before they had {named}"
        )

    def _refuse(self, digest: str, words: str) -> str:
        """Remembers that a program is refused, and returns the reason."""
        with self._lock:
            self._refused[digest] = words
            while len(self._refused) > _N_REFUSED:
                self._refused.popitem(last=False)
        return words


def _n_most() -> int:
    """Returns the most processes at one time; a task may be pinned to some of the processors."""
    return min(n_cores(), _N_PROCESSES)


class _CrashedError(InternalError):
    """A program has ended the process that compiled it."""


def _warm(process: Callable[[], ApartProcess]) -> None:
    """Has a process start JAX before the first program comes."""
    with suppress(ApartEndedError, TimeoutError):  # a program finds out
        process().ask(warming())


def _loaded(serialized: bytes, request: CompileRequest) -> Any:
    """Loads an executable that another process has compiled.

    JAX unpickles it, and runs the machine code in it; see the beginning of the file.
    """
    if request.valid.facts.calls_native:
        internals.load_lapack()
    devices = devices_of(request.on)
    exported = request.exported
    in_tree = jax.tree.structure(((0,) * len(exported.in_avals), {}))
    out_tree = exported.out_tree
    return serialize_executable.deserialize_and_load(
        serialized, in_tree, out_tree, devices[0].client, devices
    )


COMPILER = Compiler()
"""What compiles the programs of servers that compile apart; they share it."""
