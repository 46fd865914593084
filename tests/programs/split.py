"""Trains on two devices, `split.py WHERE DEVICE DEVICE`; prints what it found as JSON.

WHERE is local, cluster, or shared for a cluster of two workers.
"""

import json
import sys
from contextlib import nullcontext

import numpy as np

import jflow as tf

N_WORKERS = {"cluster": 1, "shared": 2}

where, first, second = sys.argv[1:]
x = tf.placeholder(tf.float32, (2, 4))
with tf.device(first):
    w = tf.Variable(np.full((4, 3), 0.5, np.float32), name="w")
with tf.device(second):
    b = tf.Variable(np.ones(3, np.float32), name="b")
    h = tf.numpy.tanh(tf.numpy.dot(x, w) + b)
with tf.colocate_with(w):
    loss = tf.numpy.sum(h * h)
slopes = tf.gradients(loss, [w, b])
train = tf.group(w.assign_sub(0.1 * slopes[0]), b.assign_sub(0.1 * slopes[1]))

feeds = {x: np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)}
with (
    tf.LocalCluster(1, N_WORKERS[where]) if where in N_WORKERS else nullcontext() as cluster,
    tf.Session(cluster.target() if cluster else "") as session,
):
    session.run(tf.global_variables_initializer())
    losses = []
    for _ in range(3):
        losses.append(float(session.run(loss, feeds)))
        session.run(train, feeds)
    places = session.placement([train, loss], [x])
    found = {
        "losses": losses,
        "places": {op.name: str(device) for op, device in places.items()},
        "devices": [device.name for device in session.list_devices()],
    }
print(json.dumps(found))
