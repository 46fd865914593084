"""Public operations and resources: constants, variables, queues, readers, decoders."""

from jflow.client.eager import IteratorState as IteratorState
from jflow.client.ops.accumulators import ConditionalAccumulator as ConditionalAccumulator
from jflow.client.ops.accumulators import (
    SparseConditionalAccumulator as SparseConditionalAccumulator,
)
from jflow.client.ops.arrays import constant as constant
from jflow.client.ops.arrays import convert_to_tensor as convert_to_tensor
from jflow.client.ops.arrays import ensure_shape as ensure_shape
from jflow.client.ops.arrays import group as group
from jflow.client.ops.arrays import identity as identity
from jflow.client.ops.arrays import no_op as no_op
from jflow.client.ops.arrays import placeholder as placeholder
from jflow.client.ops.creators import variable_creator_scope as variable_creator_scope
from jflow.client.ops.decoding import decode_csv as decode_csv
from jflow.client.ops.decoding import decode_image as decode_image
from jflow.client.ops.decoding import decode_jpeg as decode_jpeg
from jflow.client.ops.decoding import decode_png as decode_png
from jflow.client.ops.decoding import decode_raw as decode_raw
from jflow.client.ops.decoding import default_of_column as default_of_column
from jflow.client.ops.decoding import encode_jpeg as encode_jpeg
from jflow.client.ops.decoding import encode_png as encode_png
from jflow.client.ops.gates import tuple as tuple  # noqa: A004 - TensorFlow's name
from jflow.client.ops.initialized import (
    assert_variables_initialized as assert_variables_initialized,
)
from jflow.client.ops.initialized import is_variable_initialized as is_variable_initialized
from jflow.client.ops.initialized import (
    report_uninitialized_variables as report_uninitialized_variables,
)
from jflow.client.ops.parsing import decode_json_example as decode_json_example
from jflow.client.ops.parsing import parse_example as parse_example
from jflow.client.ops.parsing import parse_sequence_example as parse_sequence_example
from jflow.client.ops.parsing import parse_single_example as parse_single_example
from jflow.client.ops.parsing import (
    parse_single_sequence_example as parse_single_sequence_example,
)
from jflow.client.ops.queue import QueueBase as QueueBase
from jflow.client.ops.queues import FIFOQueue as FIFOQueue
from jflow.client.ops.queues import PaddingFIFOQueue as PaddingFIFOQueue
from jflow.client.ops.queues import PriorityQueue as PriorityQueue
from jflow.client.ops.queues import RandomShuffleQueue as RandomShuffleQueue
from jflow.client.ops.readers import ArrayRecordReader as ArrayRecordReader
from jflow.client.ops.readers import FixedLengthRecordReader as FixedLengthRecordReader
from jflow.client.ops.readers import IdentityReader as IdentityReader
from jflow.client.ops.readers import ParquetReader as ParquetReader
from jflow.client.ops.readers import ReaderBase as ReaderBase
from jflow.client.ops.readers import TextLineReader as TextLineReader
from jflow.client.ops.readers import TFRecordReader as TFRecordReader
from jflow.client.ops.readers import WholeFileReader as WholeFileReader
from jflow.client.ops.readers import read_file as read_file
from jflow.client.ops.rows import check_rows as check_rows
from jflow.client.ops.rows import keep_rows as keep_rows
from jflow.client.ops.rows import shuffle_rows as shuffle_rows
from jflow.client.ops.rows import take_row as take_row
from jflow.client.ops.scatter import scatter_add as scatter_add
from jflow.client.ops.scatter import scatter_div as scatter_div
from jflow.client.ops.scatter import scatter_max as scatter_max
from jflow.client.ops.scatter import scatter_min as scatter_min
from jflow.client.ops.scatter import scatter_mul as scatter_mul
from jflow.client.ops.scatter import scatter_nd_add as scatter_nd_add
from jflow.client.ops.scatter import scatter_nd_sub as scatter_nd_sub
from jflow.client.ops.scatter import scatter_nd_update as scatter_nd_update
from jflow.client.ops.scatter import scatter_sub as scatter_sub
from jflow.client.ops.scatter import scatter_update as scatter_update
from jflow.client.ops.slices import IndexedSlices as IndexedSlices
from jflow.client.ops.slices import SparseTensor as SparseTensor
from jflow.client.ops.slices import refuse_sparse as refuse_sparse
from jflow.client.ops.state import add_to_collection as add_to_collection
from jflow.client.ops.state import add_to_collections as add_to_collections
from jflow.client.ops.state import assign as assign
from jflow.client.ops.state import assign_add as assign_add
from jflow.client.ops.state import assign_sub as assign_sub
from jflow.client.ops.state import count_up_to as count_up_to
from jflow.client.ops.state import get_collection as get_collection
from jflow.client.ops.state import get_collection_ref as get_collection_ref
from jflow.client.ops.state import global_variables as global_variables
from jflow.client.ops.state import global_variables_initializer as global_variables_initializer
from jflow.client.ops.state import local_variables as local_variables
from jflow.client.ops.state import local_variables_initializer as local_variables_initializer
from jflow.client.ops.state import model_variables as model_variables
from jflow.client.ops.state import moving_average_variables as moving_average_variables
from jflow.client.ops.state import trainable_variables as trainable_variables
from jflow.client.ops.state import variables_initializer as variables_initializer
from jflow.client.ops.strings import as_string as as_string
from jflow.client.ops.strings import cast as cast
from jflow.client.ops.strings import string_join as string_join
from jflow.client.ops.strings import string_split as string_split
from jflow.client.ops.strings import string_strip as string_strip
from jflow.client.ops.strings import string_to_hash_bucket_fast as string_to_hash_bucket_fast
from jflow.client.ops.strings import string_to_number as string_to_number
from jflow.client.ops.strings import substr as substr
from jflow.client.ops.sums import accumulate_n as accumulate_n
from jflow.client.ops.sums import add_n as add_n
from jflow.client.ops.tables import tables_initializer as tables_initializer
from jflow.client.ops.variable import Variable as Variable
