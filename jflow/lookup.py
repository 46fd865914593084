"""Lookup tables, under TensorFlow's name tf.lookup."""

from jflow.api.missing import refuse_missing as _refuse_missing
from jflow.base import tracebacks as _tracebacks
from jflow.client.ops.table_initializers import (
    KeyValueTensorInitializer as KeyValueTensorInitializer,
)
from jflow.client.ops.table_initializers import TextFileIndex as TextFileIndex
from jflow.client.ops.table_initializers import TextFileInitializer as TextFileInitializer
from jflow.client.ops.tables import StaticHashTable as StaticHashTable
from jflow.client.ops.tables import StaticVocabularyTable as StaticVocabularyTable

__getattr__ = _refuse_missing(globals())

_tracebacks.end_here(globals())
