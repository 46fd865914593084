"""`QueueRunner`: background threads that fill a queue."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from jflow.client.session import Session
from jflow.compiler.graph import Operation, get_default_graph, get_default_session
from jflow.compiler.graph.stack import DefaultSession
from jflow.errors import OpError, OutOfRangeError
from jflow.training.threads import Coordinator

QUEUE_RUNNERS = "queue_runners"

_LOG = logging.getLogger(__name__)


class StartsQueueRunners:
    """Base of the sessions that start the queue runners of their graph themselves."""


class ClosableQueue(Protocol):
    """The interface of a queue for a queue runner."""

    @property
    def name(self) -> str:
        """The name of the queue in the graph."""

    def close(self, cancel_pending_enqueues: bool = False) -> Any:
        """Returns an operation that closes the queue."""


class QueueRunner:
    """Runs the enqueue operations of a queue repeatedly, each in a thread of its own.

    At the end of the data (see `queue_closed_exception_types`) the last thread closes the queue, so
    that dequeues fail after the last element.

    Args:
      queue: the queue.
      enqueue_ops: operations that add elements to it, one for each thread; they may be equal.
      close_op: operation that closes the queue; None for `queue.close()`.
      cancel_op: operation that closes it and cancels enqueues that wait; None for
        `queue.close(cancel_pending_enqueues=True)`.
      queue_closed_exception_types: errors of an enqueue operation that mean the end of the data;
        None for OutOfRangeError only.

    Raises:
      ValueError: if there is no queue or no operation.
      TypeError: if the exceptions are not a tuple of classes of `jflow.errors`.
    """

    def __init__(
        self,
        queue: ClosableQueue,
        enqueue_ops: Sequence[Operation],
        close_op: Operation | None = None,
        cancel_op: Operation | None = None,
        queue_closed_exception_types: tuple[type[OpError], ...] | None = None,
    ) -> None:
        _check(queue, enqueue_ops, queue_closed_exception_types)
        self.queue = queue
        self.enqueue_ops = list(enqueue_ops)
        self.close_op = queue.close() if close_op is None else close_op
        self.cancel_op = (
            queue.close(cancel_pending_enqueues=True) if cancel_op is None else cancel_op
        )
        self.queue_closed_exception_types = queue_closed_exception_types or (OutOfRangeError,)
        self._lock = threading.Lock()
        self._running: WeakKeyDictionary[DefaultSession, int] = WeakKeyDictionary()
        self._exceptions: list[Exception] = []

    def __repr__(self) -> str:
        n_ops = len(self.enqueue_ops)
        return f"<jflow.train.QueueRunner of {self.queue!r} with {n_ops} enqueue operations>"

    @property
    def name(self) -> str:
        """The name of the queue."""
        return self.queue.name

    @property
    def exceptions_raised(self) -> list[Exception]:
        """The errors that ended threads without a coordinator, since `create_threads`."""
        with self._lock:
            return list(self._exceptions)

    def create_threads(
        self,
        sess: DefaultSession,
        coord: Coordinator | None = None,
        daemon: bool = False,
        start: bool = False,
    ) -> list[threading.Thread]:
        """Creates threads that run the enqueue operations in a session.

        Args:
          sess: the session.
          coord: coordinator that gets the errors and stops the threads; another thread then cancels
            enqueues that wait. Without one, an error ends only its own thread.
          daemon: whether the threads are daemon threads.
          start: whether to start them.

        Returns:
          The threads; an empty list while earlier threads for this session run.
        """
        with self._lock:
            if self._running.get(sess):
                return []
            self._running[sess] = len(self.enqueue_ops)
            self._exceptions = []
        prefix = f"QueueRunnerThread-{self.name}"
        threads = [
            threading.Thread(
                target=self._run, args=(sess, op, coord), name=f"{prefix}-{op.name}", daemon=daemon
            )
            for op in self.enqueue_ops
        ]
        if coord is not None:
            threads.append(
                threading.Thread(
                    target=self._cancel_on_stop,
                    args=(sess, coord),
                    name=f"{prefix}-close_on_stop",
                    daemon=daemon,
                )
            )
            for thread in threads:
                coord.register_thread(thread)
        if start:
            for thread in threads:
                thread.start()
        return threads

    def _run(self, sess: DefaultSession, op: Operation, coord: Coordinator | None) -> None:
        """Runs one enqueue operation until an error or a stop."""
        is_at_end = False
        try:
            while not (coord and coord.should_stop()):
                self._run_step(sess, op)
        except self.queue_closed_exception_types:
            is_at_end = True
        except Exception as error:
            if coord is None:
                _LOG.exception("%s ends", threading.current_thread().name)
                with self._lock:
                    self._exceptions.append(error)
                raise
            coord.request_stop(error)
        finally:
            with self._lock:
                self._running[sess] -= 1
                is_last = not self._running[sess]
            if is_at_end and is_last:
                _run_quietly(sess, self.close_op)

    def _cancel_on_stop(self, sess: DefaultSession, coord: Coordinator) -> None:
        coord.wait_for_stop()
        self._cancel(sess)

    def _run_step(self, sess: DefaultSession, op: Operation) -> None:
        """Runs an enqueue operation once."""
        sess.run(op)

    def _cancel(self, sess: DefaultSession) -> None:
        """Ends the steps that wait."""
        _run_quietly(sess, self.cancel_op)


def _check(queue: Any, ops: Any, kinds: Any) -> None:
    if queue is None or not ops:
        raise ValueError("a QueueRunner requires a queue and at least one enqueue operation")
    if kinds is None:
        return
    is_tuple = isinstance(kinds, tuple) and bool(kinds)
    if not (is_tuple and all(isinstance(x, type) and issubclass(x, OpError) for x in kinds)):
        raise TypeError(
            "queue_closed_exception_types must be a tuple of at least one class of jflow.errors, "
            f"got {kinds!r}"
        )


def _run_quietly(sess: DefaultSession, op: Operation) -> None:
    """Runs an operation that closes the queue; queue or session may be closed before."""
    with suppress(OpError, RuntimeError):
        sess.run(op)


def add_queue_runner(qr: QueueRunner, collection: str = QUEUE_RUNNERS) -> None:
    """Adds a queue runner to the default graph, for `start_queue_runners`.

    Args:
      qr: the queue runner.
      collection: name of the collection to add it to.
    """
    get_default_graph().add_to_collection(collection, qr)


def start_queue_runners(
    sess: Session | StartsQueueRunners | None = None,
    coord: Coordinator | None = None,
    daemon: bool = True,
    start: bool = True,
    collection: str = QUEUE_RUNNERS,
) -> list[threading.Thread]:
    """Creates the threads of all queue runners of a session's graph.

    Args:
      sess: the session; None for the default session. A monitored session has started them.
      coord, daemon, start: as for `QueueRunner.create_threads`.
      collection: name of the collection that lists the queue runners.

    Returns:
      The threads; none for a monitored session.

    Raises:
      ValueError: if there is no session.
      TypeError: if `sess` is not a `Session`.
    """
    session = get_default_session() if sess is None else sess
    if session is None:
        raise ValueError(
            "cannot start queue runners: there is no default session; "
            "use `with session.as_default():` or pass sess="
        )
    if isinstance(session, StartsQueueRunners):
        return []
    if not isinstance(session, Session):
        raise TypeError(f"sess must be a jflow.Session, got {type(session).__name__}")
    runners: list[QueueRunner] = session.graph.get_collection(collection)
    if not runners:
        _LOG.warning("there is no queue runner in the collection %r to start", collection)
    return [thread for qr in runners for thread in qr.create_threads(session, coord, daemon, start)]
