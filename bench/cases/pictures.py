"""What a picture of a large placed graph takes, folded to 40 boxes."""

from __future__ import annotations

import statistics

import jflow as tf
from bench.timing import seconds, tell
from jflow.inspect import picture

N_OPERATIONS, LAYER = (1_000, 100_000), 20


def main() -> None:
    """Draws chains of layers of 20 operations, each a name scope, on two devices."""
    taken = {}
    for n in N_OPERATIONS:
        with tf.Graph().as_default() as graph:
            value = tf.constant(1.0)
            for number in range(n // LAYER):
                device = f"/cpu:{number % 2}"
                with tf.name_scope(f"block{number // 10}/layer{number}"), tf.device(device):
                    for _ in range(LAYER):
                        value = value + 1.0
        with tf.Session(graph=graph, config=tf.ConfigProto(allow_soft_placement=True)) as session:
            placement = session.placement(value)
        times = [seconds(lambda placed=placement: picture(placed, max_boxes=40)) for _ in range(3)]
        taken[f"picture of {n} operations"] = statistics.median(times)
    tell(taken)


if __name__ == "__main__":
    main()
