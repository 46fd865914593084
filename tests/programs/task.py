"""One task of a cluster, as a program of a user would be: ports in, serving until killed."""

import json
import sys

import jflow as tf

cluster = tf.train.ClusterSpec(json.loads(sys.argv[1]))
server = tf.train.Server(cluster, job_name=sys.argv[2], task_index=int(sys.argv[3]))
print("ready at", server.target, flush=True)
server.join()
