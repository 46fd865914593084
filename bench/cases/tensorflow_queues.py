"""TensorFlow's queues, for the same figures as `queues`; run in an environment of its own."""

from __future__ import annotations

from typing import Any

from bench.tensorflow_servers import servers, tf
from bench.timing import alternate, tell


def scalar(session: Any, where: str, n: int) -> None:
    """A scalar into a queue and out of it, a call for each."""
    queue = tf.FIFOQueue(1000, [tf.float32], [[]], shared_name=where)
    put, take = queue.enqueue(1.0), queue.dequeue()

    def there_and_back() -> None:
        session.run(put)
        session.run(take)

    tell(alternate({f"TensorFlow {where} enqueue and dequeue": there_and_back}, n, rounds=5))


if __name__ == "__main__":
    with tf.Session() as session:
        scalar(session, "local", 1000)
    with (
        servers() as target,
        tf.device("/job:worker/task:0"),
        tf.Session(target) as session,
    ):
        scalar(session, "remote", 300)
