"""Counts one further: `counter.py TARGET [init]`."""

import sys

import jflow as tf

count = tf.Variable(0.0, name="count")
one_more = tf.assign(count, count + 1)

with tf.Session(sys.argv[1]) as sess:
    if "init" in sys.argv[2:]:
        sess.run(count.initializer)
    sess.run(one_more)
    print(count.eval())
