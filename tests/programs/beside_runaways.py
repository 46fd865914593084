"""Checks a local session, or a server of this process, beside programs that do not end.

A process of its own, because such programs go on as long as their process.
"""

import os
import sys
import threading

import jflow as tf
from jflow.testing import PATIENCE_S
from tests.runaway import Runaway, check_beside_a_reader, check_beside_a_writer


class _Open:
    """A session that a block leaves open."""

    def __init__(self, session: tf.Session) -> None:
        self._session = session
        self.run, self.list_devices = session.run, session.list_devices

    def __enter__(self) -> tf.Session:
        return self._session

    def __exit__(self, *_: object) -> None:
        pass


server = None
if sys.argv[1] == "local":
    session = tf.Session()
    # A local session's variables are its own, so all steps are of one session.
    runaway = Runaway("", lambda: _Open(session))  # type: ignore[arg-type,return-value]
else:
    server = tf.train.Server({"local": ["127.0.0.1:0"]})
    target = server.target
    runaway = Runaway("", lambda: tf.Session(target))
check_beside_a_reader(runaway)
check_beside_a_writer(runaway)
if server is not None:
    stopping = threading.Thread(target=server.stop, daemon=True)
    stopping.start()
    stopping.join(PATIENCE_S)
    assert not stopping.is_alive(), "a server stops beside programs that run"
print("all went on", flush=True)
os._exit(0)
