"""TensorFlow's `while_loop` over two tasks, in an environment of its own."""

from __future__ import annotations

from typing import Any

from bench.tensorflow_servers import servers, tf
from bench.timing import alternate, tell

N_ITERATIONS = 1000


def repeated() -> Any:
    """A loop whose value goes to the other task and back in each iteration."""

    def body(i: Any, x: Any) -> tuple[Any, Any]:
        with tf.device("/job:worker/task:0"):
            y = x + 1.0
        with tf.device("/job:ps/task:0"):
            z = y * 0.5
        with tf.device("/job:worker/task:0"):
            return i + 1, z

    with tf.device("/job:worker/task:0"):
        start = tf.constant(0), tf.constant(1.0)
        return tf.while_loop(lambda i, _: i < N_ITERATIONS, body, start)[1]


def main() -> None:
    """The figure."""
    # As sessions of TensorFlow 1 had it: one operation of control flow a task, not a function.
    tf.disable_control_flow_v2()
    with servers() as target:
        last = repeated()
        with tf.Session(target) as session:
            assert session.run(last) == 1.0
            name = f"TensorFlow while_loop of {N_ITERATIONS} iterations over two tasks"
            tell(alternate({name: lambda: session.run(last)}, n=1))


if __name__ == "__main__":
    main()
