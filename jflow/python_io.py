"""Record files under the names of TensorFlow 1."""

from jflow.base import tracebacks as _tracebacks
from jflow.data.files import tf_record_iterator as tf_record_iterator
from jflow.state.records import TFRecordCompressionType as TFRecordCompressionType
from jflow.state.records import TFRecordOptions as TFRecordOptions
from jflow.state.records import TFRecordWriter as TFRecordWriter

_tracebacks.end_here(globals())
