"""A client that waits in a dequeue until it is killed: its arguments are a target and a count."""

import sys

import jflow as tf

queue = tf.FIFOQueue(10, [tf.int32], [()], shared_name="waited_for")
with tf.Session(sys.argv[1]) as session:
    session.run(queue.dequeue_many(int(sys.argv[2])))
