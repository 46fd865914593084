"""One task of a cluster that TF_CONFIG describes: `task.py json|config`, serving until killed."""

import json
import os
import sys

import jflow as tf

if sys.argv[1] == "json":
    told = json.loads(os.environ["TF_CONFIG"])
    cluster, job, index = told["cluster"], told["task"]["type"], told["task"]["index"]
    server = tf.train.Server(tf.train.ClusterSpec(cluster), job_name=job, task_index=index)
else:
    config = tf.contrib.learn.RunConfig()
    server = tf.train.Server(
        config.cluster_spec, job_name=config.task_type, task_index=config.task_id
    )
    assert config.master == server.target

print("ready at", server.target, flush=True)
server.join()
