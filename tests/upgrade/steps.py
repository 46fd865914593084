"""A client of a cluster of a ps and a worker, for the code of any release: all kinds of steps.

`python steps.py TARGET FOLDER` prints what it found as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import jflow as tf

PS, WORKER = "/job:ps/task:0", "/job:worker/task:0"


def all_on(device: str) -> Callable[..., dict[Any, Any]]:
    """A strategy that uses one device wherever it is allowed."""

    def place(graph: Any, devices: Any, costs: Any, constraints: Any) -> dict[Any, Any]:
        chosen = {}
        for op, number in zip(graph.operations, constraints.classes, strict=True):
            allowed = constraints.allowed.get(number, range(len(devices)))
            wanted = [i for i in allowed if device in str(devices[i])]
            chosen[op] = devices[[*wanted, *allowed][0]]
        return chosen

    return place


def main(target: str, folder: str) -> None:
    with tf.device(PS):
        x = tf.Variable(np.float32(3), name="x")
        queue = tf.FIFOQueue(8, [tf.float32], shapes=[()], shared_name="queue")
    with tf.device(WORKER):
        y = tf.Variable(np.float32(5), name="y")
        product = x * y
    with tf.device(PS):
        total = product + x
        enqueue = queue.enqueue_many([tf.stack([total, total + 1])])
    free = tf.Variable(np.float32(0), name="free")
    count = free.assign_add(1.0)
    add = tf.group(x.assign_add(1.0), y.assign_add(product))
    take = queue.dequeue()
    found: dict[str, Any] = {}
    with tf.Session(target) as session:
        session.run([x.initializer, y.initializer, free.initializer])
        found["total"] = float(session.run(total))
        found["many"] = float(session.run_many(total, steps=3))
        session.run(enqueue)
        found["taken"] = [float(session.run(take)) for _ in range(2)]
        session.run(add)
        found["added"] = [float(one) for one in session.run([x, y])]
        path = tf.train.Saver([x, y]).save(session, f"{folder}/model")
        session.run(add)
        tf.train.Saver([x, y]).restore(session, path)
        found["restored"] = [float(one) for one in session.run([x, y])]
        found["counted"], found["moved"] = [], 0
        for device in (WORKER, PS, WORKER):
            session.run(count)
            replacement = session.replace(all_on(device), fetches=count, min_gain=None)
            found["moved"] += len(replacement.moved)
            found["counted"].append(float(session.run(count)))
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
