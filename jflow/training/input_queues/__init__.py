"""Input pipelines of queues and threads, as in TensorFlow 1."""
