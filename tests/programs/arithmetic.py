"""A graph without devices, evaluated on a server that runs already: `arithmetic.py TARGET`."""

import sys

import jflow as tf

first = tf.constant(1.0)
second = first + 2
third = first * 3
with tf.Session(sys.argv[1]) as sess:
    print(third.eval(), sess.run([first, second]))
    places = {str(device) for device in sess.placement([second, third]).values()}
    print(*places)
