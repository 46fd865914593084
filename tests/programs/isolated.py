"""Opens an isolated session, and adds one to its variable for each line that it reads.

Arguments: the target, and the first value of the variable.
"""

import sys

import jflow as tf

x = tf.Variable(float(sys.argv[2]), name="x")
add = x.assign_add(1.0)
config = tf.ConfigProto(isolate_session_state=True)
with tf.Session(sys.argv[1], config=config) as session:
    session.run(x.initializer)
    for _ in sys.stdin:
        print(session.run(add), flush=True)
