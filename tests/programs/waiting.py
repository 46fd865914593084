"""A client that waits in dequeues until it is killed; prints a line once all of them have begun.

Its arguments are a target, how many elements each dequeue takes, and how many dequeues there are.
"""

import sys

import jflow as tf

target, n_elements, n_waits = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
queue = tf.FIFOQueue(10, [tf.int32], [()], shared_name="waited_for")
elements, size = queue.dequeue_many(n_elements), queue.size()
with tf.Session(target) as session:
    begun = [session.run_async(elements) for _ in range(n_waits)]
    session.run(size)  # which is answered behind them
    print("waiting", flush=True)
    begun[0].result()
