"""A client whose calls are interrupted at random moments: bytes of answers must not be lost.

`python -m tests.net.wire.interrupted ADDRESS` prints "usable" if the session is, after 40
interrupts.
"""

from __future__ import annotations

import random
import signal
import sys
import threading
import time

import numpy as np

from jflow.base.deadline import FOREVER, Deadline
from jflow.net.wire import connect
from tests.net.protocol.hosts import PATIENCE_S, same


def main(address: str) -> None:
    """Calls the server while another thread interrupts this one."""
    client = connect(address, PATIENCE_S)
    payload = np.arange(3000.0)
    is_begun, is_over = threading.Event(), threading.Event()
    thread = threading.Thread(target=interrupt, args=(is_begun, is_over))
    n_interrupts = n_answers = 0
    thread.start()  # interrupts nothing before `is_begun`: this call would be left half done
    try:
        while n_interrupts < 40 or n_answers < 40:
            try:
                is_begun.set()
                while n_interrupts < 40 or n_answers < 40:
                    (value,) = client.run_step(1, [payload], FOREVER)
                    assert len(value) == len(payload)
                    n_answers += 1
            except KeyboardInterrupt:
                n_interrupts += 1
    finally:
        stop(thread, is_over)
    assert client.transport != "grpc"
    (value,) = client.run_step(1, [payload], Deadline(PATIENCE_S))
    same(value, payload)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    client.close()
    sys.stdout.write("usable\n")


def stop(thread: threading.Thread, is_over: threading.Event) -> None:
    """Ends the interrupts; the last one may be raised here."""
    while not is_over.is_set() or thread.is_alive():
        try:
            is_over.set()
            thread.join()
            time.sleep(0.01)
        except KeyboardInterrupt:
            continue


def interrupt(is_begun: threading.Event, is_over: threading.Event) -> None:
    """Sends SIGINT to the main thread at random moments, from one event to the other."""
    is_begun.wait()
    random_, main_thread = random.Random(1), threading.main_thread().ident
    assert main_thread is not None
    while not is_over.is_set():
        time.sleep(random_.random() * 0.004)
        if not is_over.is_set():
            signal.pthread_kill(main_thread, signal.SIGINT)


if __name__ == "__main__":
    main(sys.argv[1])
