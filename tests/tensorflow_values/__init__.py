"""Programs that TensorFlow and jflow run alike, and the values that both give.

`test_values.py` runs them by jflow. Where TensorFlow is installed, `compare.py` runs them by
TensorFlow: `.venv/tensorflow/bin/python tests/tensorflow_values/compare.py`, after
`make .venv/.tensorflow`.
"""
