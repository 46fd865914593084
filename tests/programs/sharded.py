"""Trains with variables on a mesh of two devices, `sharded.py WHERE`; prints what it found as JSON.

WHERE is local or cluster. The mesh has GPUs where there are several, else CPUs; the loss is read on
a CPU, which is that of another task in a cluster.
"""

import json
import sys
from contextlib import nullcontext

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

import jflow as tf

(where,) = sys.argv[1:]
trainer, reader = ("", "/cpu:0") if where == "local" else ("/job:worker/task:0", "/job:ps/cpu:0")
w_value = np.linspace(0, 1, 32, dtype=np.float32).reshape(4, 8)


def loss_of(w, x):
    def product(x, w):
        return jax.lax.psum(x @ w, "model")

    y = jax.shard_map(product, in_specs=(P(None, "model"), P("model")), out_specs=P())(x, w)
    return jnp.mean(jnp.tanh(y) ** 2)


x = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)
with tf.device(trainer, mesh={"model": 2}):
    w = tf.Variable(w_value, name="w", sharding=P("model"))
    loss = tf.function(loss_of)(w.value(), tf.constant(x))
train = tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
with tf.device(reader):
    total = loss + 0 * tf.numpy.sum(w)

with (
    tf.LocalCluster(ps=1, workers=1) if where == "cluster" else nullcontext() as cluster,
    tf.Session(cluster.target() if cluster else "") as session,
):
    session.run(tf.global_variables_initializer())
    losses = []
    for _ in range(3):
        losses.append(float(session.run(total)))
        session.run(train)
    places = session.placement([train, total])
    found = {
        "losses": losses,
        "places": sorted({str(device) for device in places.values()}),
        "devices": [device.name for device in session.list_devices()],
    }
print(json.dumps(found))
