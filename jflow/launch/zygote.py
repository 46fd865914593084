"""`Zygote`: a process that has imported what programs need, and forks into them.

A new Python that imports JAX and jflow takes seconds; a fork of one that has imported them, and
initialized nothing, takes a tenth. It is safe only because no thread and no connection exists yet.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import IO, Any, NoReturn

from jflow.base.failpoints import VARIABLE
from jflow.base.failpoints.actions import switch_on
from jflow.base.failpoints.points import actions
from jflow.base.handles import Closing

_POLL_S = 0.002
_MAX_MESSAGE = 1 << 20
_LENGTH_BYTES = 4
_STDERR = 2
_PATIENCE_S = 5.0
"""How long a zygote may take to kill its programs and end, in seconds, before it is killed."""
_LAPACK = ("scipy.linalg.cython_blas", "scipy.linalg.cython_lapack")
"""Modules that JAX imports at the first compilation, slower than all else in a start."""
_MAIN = f"from {__name__} import main; main()"


class Zygote(Closing):
    """Starts programs, given as Python modules, quickly by forking; thread-safe.

    It ends with this process, however that ends, and kills the programs that still run then.

    Programs get the environment variables of their start, but those that are read when a library
    is imported, such as those of JAX, are read once, when the zygote starts.

    Args:
      modules: what it imports before it forks.
      environment: environment variables beside those of this process, for these imports.
    """

    def __init__(
        self, modules: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        whole = os.environ | dict(environment or {})
        here, there = socket.socketpair()
        self._lock = threading.Lock()
        self._socket = here
        self._has_answered = False
        with there:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _MAIN, str(there.fileno()), *modules],
                pass_fds=[there.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={name: text for name, text in whole.items() if name != VARIABLE},
            )

    @property
    def pid(self) -> int:
        """The process id of the zygote."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether the zygote's process has ended, so that it can start no more programs."""
        return self._process.poll() is not None

    def start(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        *,
        stderr: int = _STDERR,
        core: int | None = None,
    ) -> ForkedProgram:
        """Starts a program.

        Args:
          arguments: "-m", the name of its module, and its arguments.
          environment: all of its environment variables.
          stderr: the file that becomes its standard error.
          core: the processor core that it is pinned to; None for those of this process.

        Raises:
          ConnectionError: if the zygote has ended; what it printed says why.
        """
        if len(arguments) < 2 or arguments[0] != "-m":
            raise ValueError(f"expected '-m', a module and its arguments, got {arguments!r}")
        input_read, input_write = os.pipe()
        output_read, output_write = os.pipe()
        try:
            started = self.ask(
                {"start": list(arguments[1:]), "environment": dict(environment), "core": core},
                (input_read, output_write, stderr),
            )
        except BaseException:
            os.close(input_write)
            os.close(output_read)
            raise
        finally:
            os.close(input_read)
            os.close(output_write)
        return ForkedProgram(
            self, started, os.fdopen(input_write, "wb"), os.fdopen(output_read, "rb", 0)
        )

    def ask(self, request: Mapping[str, Any], files: Sequence[int] = ()) -> Any:
        """Sends a request with open files to the zygote, and returns its reply."""
        with self._lock:
            _send(self._socket, request, files)
            reply, _ = _receive(self._socket)
            self._has_answered = True
        if reply is None:
            raise ConnectionError("the process that starts programs has ended; its output says why")
        return reply["reply"]

    def close(self) -> None:
        """Ends the zygote and its programs, and waits for the zygote. May be called again."""
        with self._lock:
            self._socket.close()
        self._process.wait()

    def abort(self) -> None:
        """Like `close`, but also interrupts a thread that waits for the zygote, with an error."""
        with suppress(OSError):  # it has ended
            self._socket.shutdown(socket.SHUT_RDWR)
        try:
            self._process.wait(_PATIENCE_S if self._has_answered else 0.0)
        except subprocess.TimeoutExpired:
            self._process.kill()  # it still imports, so it has no programs, or is stopped
            self._process.wait()

    def _leave(self, failed: bool) -> None:
        self.close()


class ForkedProgram:
    """A program started by a zygote; has the methods of `subprocess.Popen` that are needed.

    Attributes:
      pid: the process id.
      stdin, stdout: the ends of its pipes.
    """

    def __init__(self, zygote: Zygote, pid: int, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self._zygote = zygote
        self._code: int | None = None
        self.pid = pid
        self.stdin, self.stdout = stdin, stdout

    def poll(self) -> int | None:
        """Returns the exit code, negative for a signal; None while the program runs."""
        if self._code is None:
            self._code = self._zygote.ask({"poll": self.pid})
        return self._code

    def wait(self) -> int:
        """Blocks until the program has ended, and returns its exit code."""
        while (code := self.poll()) is None:
            time.sleep(_POLL_S)
        return code

    def send_signal(self, number: int) -> None:
        """Sends a signal to the program, unless it has ended."""
        if self.poll() is None:  # until it is asked again, the zygote keeps the process id
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Sends SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Sends SIGTERM."""
        self.send_signal(signal.SIGTERM)


def _send(through: socket.socket, message: Mapping[str, Any], files: Sequence[int] = ()) -> None:
    data = json.dumps(message).encode()
    header = len(data).to_bytes(_LENGTH_BYTES, "little")
    try:
        socket.send_fds(through, [header], files)
        through.sendall(data)
    except BrokenPipeError:
        raise ConnectionError("the process that starts programs has ended") from None


def _receive(through: socket.socket) -> tuple[Any, list[int]]:
    """Receives a message and the files sent with it; (None, []) at the end."""
    try:
        header, files, _, _ = socket.recv_fds(through, _LENGTH_BYTES, 3)
    except ConnectionResetError:
        return None, []
    if len(header) < _LENGTH_BYTES:
        return None, []
    left, parts = int.from_bytes(header, "little"), []
    while left:
        part = through.recv(min(left, _MAX_MESSAGE))
        if not part:
            return None, []
        parts.append(part)
        left -= len(part)
    return json.loads(b"".join(parts)), files


def _serve(through: socket.socket) -> None:
    """Serves requests until the other end is closed, then kills the programs that still run."""
    running: set[int] = set()
    while True:
        request, files = _receive(through)
        if request is None:
            break
        if "poll" in request:
            pid, status = os.waitpid(request["poll"], os.WNOHANG)
            reply = os.waitstatus_to_exitcode(status) if pid else None
            running.discard(pid)
        else:
            sys.stdout.flush()
            reply = os.fork()
            if not reply:
                through.close()
                _become(request["start"], request["environment"], files, request["core"])
            running.add(reply)
            for file in files:
                os.close(file)
        try:
            _send(through, {"reply": reply})
        except ConnectionError:
            break
    for pid in running:  # not waited for, so no other process can have its id
        os.kill(pid, signal.SIGKILL)


def _become(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    files: Sequence[int],
    core: int | None,
) -> NoReturn:
    """Turns this process, which has just been forked, into a program and runs it to its end."""
    code = 1
    try:
        os.setsid()
        if core is not None:
            # Before its libraries look how many threads they should have.
            os.sched_setaffinity(0, {core})
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        os.environ.clear()
        os.environ.update(environment)
        actions.clear()
        if text := os.environ.get(VARIABLE):
            switch_on(text)
        sys.argv = list(arguments)
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    with suppress(Exception):
        sys.stdout.flush()
    os._exit(code)


def main() -> None:
    """Runs the zygote; the arguments are its socket's number and the modules to import."""
    gc.disable()  # imports leave no garbage, and take a seventh longer with collections
    for module in sys.argv[2:]:
        import_module(module)
    if "jax" in sys.modules:
        for module in _LAPACK:
            import_module(module)
    # Else a collection in a program would write to each object, and so copy each page.
    gc.collect()
    gc.freeze()
    gc.enable()
    # JAX warns of forks, and runpy of modules that are imported already.
    warnings.simplefilter("ignore", RuntimeWarning)
    with socket.socket(fileno=int(sys.argv[1])) as through:
        _serve(through)
    os._exit(0)
