"""Reverb's queue, for the same figures as `queues`; run in an environment of its own.

With "serve" it is the server, which prints its port and goes on until its standard input ends;
with a port it is a producer, which goes on until it is killed.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np
import reverb

from bench.timing import drain, seconds, tell

ITEM = np.random.default_rng(0).random((84, 84), np.float32)  # Reverb compresses what is alike
N_ITEMS, N_PENDING, N_ROUNDS = 2000, 40, 3
COMMAND = [sys.executable, "-m", "bench.cases.reverb_queue"]


def write(client: reverb.Client, table: str) -> None:
    """Puts items, pipelined: more of them pending than these, and Reverb warns and slows down."""
    with client.trajectory_writer(num_keep_alive_refs=1) as writer:
        for _ in range(N_ITEMS):
            writer.append({"x": ITEM})
            writer.create_item(table, 1.0, {"x": writer.history["x"][-1:]})
            writer.flush(block_until_num_items=N_PENDING)
        writer.flush()


def measure(port: int) -> None:
    """Writing and taking by turns, so that neither waits for the other; then both at once."""
    client = reverb.Client(f"localhost:{port}")
    written, taken = [], []
    for _ in range(N_ROUNDS):
        written.append(seconds(lambda: write(client, "store")) / N_ITEMS)
        items = client.sample("store", num_samples=N_ITEMS)
        taken.append(drain(items, N_ITEMS, n_before=0))
    tell({"item written to Reverb": statistics.median(written)})
    tell({"item taken from Reverb": statistics.median(taken)})
    with subprocess.Popen([*COMMAND, str(port)]) as producer:
        items = client.sample("through", num_samples=sys.maxsize)
        times = [drain(items) for _ in range(N_ROUNDS)]
        producer.kill()
    tell({"item through Reverb": statistics.median(times)})


def serve() -> None:
    """Keeps the items until standard input ends."""
    tables = [reverb.Table.queue("store", N_ITEMS), reverb.Table.queue("through", 1000)]
    with tempfile.TemporaryDirectory() as folder:
        checkpointer = reverb.checkpointers.DefaultCheckpointer(folder)
        server = reverb.Server(tables, checkpointer=checkpointer)
        sys.stdout.write(f"{server.port}\n")
        sys.stdout.flush()
        sys.stdin.read()
        server.stop()


def produce(port: int) -> None:
    """Puts items without end."""
    client = reverb.Client(f"localhost:{port}")
    while True:
        write(client, "through")


def main() -> None:
    """Measures a server in a process of its own."""
    pipe = subprocess.PIPE
    with subprocess.Popen([*COMMAND, "serve"], stdin=pipe, stdout=pipe, text=True) as server:
        measure(int(server.stdout.readline()))


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            main()
        case ["serve"]:
            serve()
        case [port]:
            produce(int(port))
