"""Names that TensorFlow 1 has under tf.contrib."""

from jflow.contrib import learn as learn
from jflow.contrib import training as training
