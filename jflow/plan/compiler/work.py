"""The part of the process that compiles: its devices, and the compilation of one program."""

from __future__ import annotations

import faulthandler
import os
import select
import socket
import threading

import jax
import jax.numpy as jnp
from jax.experimental import serialize_executable

from jflow.base.failpoints import failpoint
from jflow.plan.apart.messages import ApartMessage, MessageKind
from jflow.plan.compiler.requests import PLATFORM, decoded, number_of_devices
from jflow.plan.xla import internals
from jflow.plan.xla.compilation import compile_here

NOT_SERIALIZABLE = 1
"""The flag of a refusal of a program that was compiled, but cannot be passed on."""


def prepare(through: socket.socket) -> None:
    """Prepares the process: it ends with the other one, and writes where it crashes."""
    faulthandler.enable()
    threading.Thread(target=_end_with, args=(through,), daemon=True).start()
    jax.config.update("jax_platforms", PLATFORM)
    # What XLA has loaded from a cache lacks its functions when it is serialized again.
    jax.config.update("jax_enable_compilation_cache", False)


def answer(data: bytes) -> ApartMessage:
    """Compiles a program and returns the executable, serialized by JAX."""
    if not internals.has_started():
        jax.config.update("jax_num_cpu_devices", number_of_devices(data))
    with jax.enable_x64(True):
        try:
            request = decoded(data)
            if request is None:
                jax.jit(lambda x: x + 1).lower(jnp.zeros(())).compile()  # the first takes longer
                return ApartMessage(MessageKind.DONE)
            failpoint("compiler.before_compile")
            compiled = compile_here(request)
        except Exception as error:  # JAX raises many kinds of errors
            return ApartMessage(MessageKind.REFUSED, str(error).encode(errors="replace"))
        try:
            serialized, _, _ = serialize_executable.serialize(compiled)
        except Exception:
            return ApartMessage(MessageKind.REFUSED, flags=NOT_SERIALIZABLE)
    return ApartMessage(MessageKind.DONE, serialized)


def _end_with(through: socket.socket) -> None:
    """Ends this process when the other one has closed its socket, also within a compilation."""
    poll = select.poll()
    poll.register(through, select.POLLHUP | select.POLLRDHUP)
    poll.poll()
    os._exit(0)
