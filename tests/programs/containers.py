"""Two problems with equal names side by side: `containers.py TARGET OTHER_TARGET`."""

import sys

import jflow as tf

target, other = sys.argv[1:]


def build(amount):
    with tf.variable_scope("layer"):
        weight = tf.Variable(float(amount), name="weight")
    return weight, weight.assign_add(1.0)


shared, grow_shared = build(1)
with tf.Graph().as_default() as graph:
    with tf.container("my_problem_1"):
        own, grow_own = build(100)
    with tf.Session(target) as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(grow_own.op)
        print("own", own.eval(), own.name)

with tf.Session(target) as sess:
    shared.initializer.run()
    print("shared", shared.eval(), shared.name)

tf.Session.reset(other, ["my_problem_1"])

with tf.Session(target, graph=graph) as sess:
    try:
        own.eval()
    except tf.errors.FailedPreconditionError as error:
        print("gone", error.op)
    own.initializer.run()
    print("own", own.eval())

with tf.Session(other) as sess:
    print("shared", shared.eval())
