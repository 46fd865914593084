"""Lookup tables, under TensorFlow's name tf.contrib.lookup."""

from jflow.api.missing import refuse_missing as _refuse_missing
from jflow.base import tracebacks as _tracebacks
from jflow.client.ops.index_tables import index_table_from_file as index_table_from_file
from jflow.client.ops.index_tables import index_table_from_tensor as index_table_from_tensor
from jflow.client.ops.index_tables import (
    index_to_string_table_from_file as index_to_string_table_from_file,
)
from jflow.client.ops.index_tables import (
    index_to_string_table_from_tensor as index_to_string_table_from_tensor,
)
from jflow.client.ops.table_initializers import (
    KeyValueTensorInitializer as KeyValueTensorInitializer,
)
from jflow.client.ops.table_initializers import TextFileIndex as TextFileIndex
from jflow.client.ops.table_initializers import TextFileInitializer as TextFileInitializer
from jflow.client.ops.tables import FastHashSpec as FastHashSpec
from jflow.client.ops.tables import HasherSpec as HasherSpec
from jflow.client.ops.tables import HashTable as HashTable
from jflow.client.ops.tables import IdTableWithHashBuckets as IdTableWithHashBuckets

__getattr__ = _refuse_missing(globals())

_tracebacks.end_here(globals())
