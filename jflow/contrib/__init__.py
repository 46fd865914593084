"""Names that TensorFlow 1 has under tf.contrib."""

from jflow.contrib import learn as learn
from jflow.contrib import lookup as lookup
from jflow.contrib import training as training
