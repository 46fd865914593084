"""One program for all tasks of a cluster: trains a variable on a parameter server from workers."""

import jflow as tf


def main(role: tf.ProgramRole) -> None:
    with tf.device("/job:ps"):
        total = tf.Variable(0.0, name="total")
    with tf.device("/job:worker"):
        add = total.assign_add(tf.constant(2.0) + 1.0)
    with tf.Session(role.master) as session:
        session.run(total.initializer)
        print(*(session.run(add) for _ in range(3)))


tf.run(main)
print("done")
