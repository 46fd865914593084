"""A task that knows its role by TF_CONFIG alone: parameter servers serve, and workers train.

It is one program for all of them. Each worker ends when all of its updates have been made.
"""

import sys

import jflow as tf

N_STEPS = 20

config = tf.contrib.learn.RunConfig()
server = tf.train.Server(config.cluster_spec, config.task_type, config.task_id)
print("ready", flush=True)
if config.task_type == "ps":
    server.join()
    sys.exit()

training = tf.contrib.training
setter = tf.train.replica_device_setter(
    cluster=config.cluster_spec,
    worker_device=f"/job:worker/task:{config.task_id}",
    ps_strategy=training.GreedyLoadBalancingStrategy(
        config.num_ps_replicas, training.byte_size_load_fn
    ),
)
with tf.device(setter):
    slope = tf.Variable(0.0, name="slope")
    step = tf.train.get_or_create_global_step()
    loss = tf.numpy.mean((slope * tf.constant([1.0, 2.0]) - tf.constant([3.0, 6.0])) ** 2)
    update = tf.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)
hooks = [tf.train.StopAtStepHook(last_step=N_STEPS)]
with tf.train.MonitoredTrainingSession(config.master, config.is_chief, hooks=hooks) as session:
    while not session.should_stop():
        session.run(update)
with tf.Session(config.master) as session:
    print(config.is_chief, session.run(step) >= N_STEPS, round(float(session.run(slope)), 2))
