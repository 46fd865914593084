"""Forks, and uses in the child what the parent has made; prints what becomes of each use."""

import os
import warnings

import numpy as np

import jflow as tf

warnings.simplefilter("ignore")  # JAX warns of the fork

one = np.float32(1)
function = tf.function(lambda x: x + 1)
function(one)
v = tf.Variable(1.0)
local = tf.Session()
local.run(v.initializer)
server = tf.train.Server({"local": ["127.0.0.1:0"]})
remote = tf.Session(server.target)
remote.run(v.initializer)
with tf.connect(server.target) as connection:
    live = tf.Variable(2.0, name="live")
    queue = tf.FIFOQueue(3, tf.float32, shared_name="q")
    queue.enqueue(1.0)
    uses = {
        "local session": lambda: local.run(v),
        "another session": lambda: tf.Session().run(v),
        "callable": local.make_callable(v),
        "session": lambda: remote.run(v),
        "devices": remote.list_devices,
        "reset": lambda: tf.Session.reset(server.target),
        "function": lambda: function(one),
        "variable": lambda: live.value() + 1,
        "update": lambda: live.assign_add(1.0),
        "queue": queue.dequeue,
        "connection": connection.list_devices,
        "server": lambda: server.connect(server.cluster_spec),
    }
    pid = os.fork()
    if pid == 0:
        for name, use in uses.items():
            try:
                use()
                print(f"{name} works", flush=True)
            except RuntimeError as error:
                print(name, "spawn" if '"spawn"' in str(error) else error, flush=True)
        for closed in (local, remote, connection):
            closed.close()
        server.stop()
        print("closed", flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
    print("parent", local.run(v), remote.run(v), float(live.value()), flush=True)
os._exit(0)
