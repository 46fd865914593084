"""Follows values through jflow, call by call: `python -m tests.programs.roads [ROAD]`.

Prints for each road how many calls, files and rooms a value passes and how often it changes rooms;
for one road, every call. `test_roads.py` compares ARCHITECTURE.md with what is recorded here.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import jflow as tf
from jflow.net.wire import data_streams

JFLOW = Path(__file__).parents[2] / "jflow"


@dataclass(frozen=True)
class Call:
    """A function of jflow that was called.

    Attributes:
      at: when, in seconds of `time.perf_counter`.
      thread: the name of the thread.
      file: its path below `jflow/`.
      name: its qualified name.
    """

    at: float
    thread: str
    file: str
    name: str

    @property
    def room(self) -> str:
        """The wing and its folder, `task/worker`; a file that lies in the wing itself is one."""
        return "/".join(self.file.removesuffix(".py").split("/")[:2])


class Recorder:
    """Records the calls of all threads that begin after it is installed."""

    def __init__(self) -> None:
        self._calls: list[Call] | None = None

    def install(self) -> None:
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    @contextmanager
    def recording(self) -> Iterator[list[Call]]:
        calls = self._calls = []
        yield calls
        time.sleep(0.05)  # what follows the answer on the other threads
        self._calls = None
        calls.sort(key=lambda call: call.at)

    def _note(self, frame: Any, event: str, argument: object) -> None:
        calls, code = self._calls, frame.f_code
        if calls is None or event != "call" or not code.co_filename.startswith(str(JFLOW)):
            return
        file = str(Path(code.co_filename).relative_to(JFLOW))
        calls.append(Call(time.perf_counter(), threading.current_thread().name, file, name(code)))


def name(code: Any) -> str:
    """The qualified name of a function, of the function around it where it has no name itself."""
    parts: list[str] = code.co_qualname.split(".<locals>.")
    return next((part for part in reversed(parts) if not part.startswith("<")), parts[0])


def record(recorder: Recorder, road: Callable[[], object], warm_ups: int) -> list[Call]:
    for _ in range(warm_ups):
        road()
    with recorder.recording() as calls:
        road()
    return calls


def walk_all() -> dict[str, list[Call]]:
    """The calls of each road, in a process that has not started anything of jflow."""
    os.environ["JFLOW_TRANSPORT"] = "unix"
    recorder = Recorder()
    recorder.install()
    data_streams.DataStreams.has_inproc = False  # so that the server is met as in another process
    server = tf.train.Server({"worker": ["127.0.0.1:0"]})
    ps = tf.train.Server({"ps": ["127.0.0.1:0"]})
    graph = tf.Graph()
    with graph.as_default():
        x = tf.placeholder(np.float32, ())
        updated = tf.Variable(np.float32(1)).assign_add(x * 2)
        queue = tf.FIFOQueue(100, [np.float32], [()])
        enqueue, dequeue = queue.enqueue(x), queue.dequeue()
        initialize = tf.global_variables_initializer()

    gradient = tf.grad(lambda weight: jnp.sum(weight * weight))

    roads = {}
    with tf.Session(server.target, graph=graph) as session:
        session.run(initialize)
        roads["step"] = record(recorder, lambda: session.run(updated, {x: 1.0}), 5)
        roads["enqueue"] = record(recorder, lambda: session.run(enqueue, {x: 1.0}), 5)
        roads["dequeue"] = record(recorder, lambda: session.run(dequeue), 3)
    with tf.connect():
        weight = tf.Variable(np.ones(3, np.float32))
        roads["gradient"] = record(recorder, lambda: gradient(weight), 0)

    cluster = {"worker": [server.target], "ps": [ps.target]}
    addresses = {job: [t.removeprefix("grpc://") for t in cluster[job]] for job in cluster}
    strategy = tf.distribute.ParameterServerStrategy(tf.train.ClusterSpec(addresses))
    coordinator = tf.ClusterCoordinator(strategy)
    total, batch = tf.function(jnp.sum), np.ones(3, np.float32)
    roads["closure"] = record(
        recorder, lambda: coordinator.schedule(total, args=(batch,)).fetch(), 5
    )
    return roads


def figures(calls: list[Call]) -> str:
    rooms = [call.room for call in calls]
    changes = sum(a != b for a, b in itertools.pairwise(rooms))
    return (
        f"{len(calls)} calls, {len({call.file for call in calls})} files, "
        f"{len(set(rooms))} rooms, {changes} changes: {' '.join(dict.fromkeys(rooms))}"
    )


def main(arguments: list[str]) -> None:
    roads = walk_all()
    if arguments == ["--json"]:
        print(json.dumps({road: [asdict(call) for call in calls] for road, calls in roads.items()}))
        return
    for road, calls in roads.items():
        print(f"{road}: {figures(calls)}")
        for call in calls if road in arguments else ():
            print(f"  {call.thread[:14]:14} {call.file} {call.name}")


if __name__ == "__main__":
    main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)  # threads of the coordinator are recorded, too slow to end in order
