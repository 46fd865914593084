"""The public names of `jflow`, at which tracebacks of exceptions end."""

from jax.numpy import bfloat16 as bfloat16
from jax.numpy import bool as bool
from jax.numpy import complex64 as complex64
from jax.numpy import complex128 as complex128
from jax.numpy import float16 as float16
from jax.numpy import float32 as float32
from jax.numpy import float64 as float64
from jax.numpy import int8 as int8
from jax.numpy import int16 as int16
from jax.numpy import int32 as int32
from jax.numpy import int64 as int64
from jax.numpy import uint8 as uint8
from jax.numpy import uint16 as uint16
from jax.numpy import uint32 as uint32
from jax.numpy import uint64 as uint64

from jflow.base import tracebacks as _tracebacks
from jflow.base.options import ConfigProto as ConfigProto
from jflow.base.options import GPUOptions as GPUOptions
from jflow.base.options import GraphOptions as GraphOptions
from jflow.base.options import OptimizerOptions as OptimizerOptions
from jflow.base.options import RunOptions as RunOptions
from jflow.base.progress import progress as progress
from jflow.base.values import Dimension as Dimension
from jflow.base.values import TensorShape as TensorShape
from jflow.base.values import string as string
from jflow.client.binding import BoundState as BoundState
from jflow.client.binding import bind as bind
from jflow.client.functions import Connection as Connection
from jflow.client.functions import connect as connect
from jflow.client.functions import function as function
from jflow.client.functions import grad as grad
from jflow.client.functions import value_and_grad as value_and_grad
from jflow.client.ops import ArrayRecordReader as ArrayRecordReader
from jflow.client.ops import ConditionalAccumulator as ConditionalAccumulator
from jflow.client.ops import FIFOQueue as FIFOQueue
from jflow.client.ops import FixedLengthRecordReader as FixedLengthRecordReader
from jflow.client.ops import IdentityReader as IdentityReader
from jflow.client.ops import IndexedSlices as IndexedSlices
from jflow.client.ops import IteratorState as IteratorState
from jflow.client.ops import PaddingFIFOQueue as PaddingFIFOQueue
from jflow.client.ops import ParquetReader as ParquetReader
from jflow.client.ops import PriorityQueue as PriorityQueue
from jflow.client.ops import QueueBase as QueueBase
from jflow.client.ops import RandomShuffleQueue as RandomShuffleQueue
from jflow.client.ops import ReaderBase as ReaderBase
from jflow.client.ops import SparseConditionalAccumulator as SparseConditionalAccumulator
from jflow.client.ops import SparseTensor as SparseTensor
from jflow.client.ops import TextLineReader as TextLineReader
from jflow.client.ops import TFRecordReader as TFRecordReader
from jflow.client.ops import Variable as Variable
from jflow.client.ops import WholeFileReader as WholeFileReader
from jflow.client.ops import add_to_collection as add_to_collection
from jflow.client.ops import add_to_collections as add_to_collections
from jflow.client.ops import as_string as as_string
from jflow.client.ops import assert_variables_initialized as assert_variables_initialized
from jflow.client.ops import assign as assign
from jflow.client.ops import assign_add as assign_add
from jflow.client.ops import assign_sub as assign_sub
from jflow.client.ops import cast as cast
from jflow.client.ops import constant as constant
from jflow.client.ops import count_up_to as count_up_to
from jflow.client.ops import decode_csv as decode_csv
from jflow.client.ops import decode_image as decode_image
from jflow.client.ops import decode_jpeg as decode_jpeg
from jflow.client.ops import decode_png as decode_png
from jflow.client.ops import decode_raw as decode_raw
from jflow.client.ops import encode_jpeg as encode_jpeg
from jflow.client.ops import encode_png as encode_png
from jflow.client.ops import ensure_shape as ensure_shape
from jflow.client.ops import get_collection as get_collection
from jflow.client.ops import get_collection_ref as get_collection_ref
from jflow.client.ops import global_variables as global_variables
from jflow.client.ops import global_variables_initializer as global_variables_initializer
from jflow.client.ops import group as group
from jflow.client.ops import identity as identity
from jflow.client.ops import is_variable_initialized as is_variable_initialized
from jflow.client.ops import local_variables as local_variables
from jflow.client.ops import local_variables_initializer as local_variables_initializer
from jflow.client.ops import model_variables as model_variables
from jflow.client.ops import moving_average_variables as moving_average_variables
from jflow.client.ops import no_op as no_op
from jflow.client.ops import parse_example as parse_example
from jflow.client.ops import parse_single_example as parse_single_example
from jflow.client.ops import placeholder as placeholder
from jflow.client.ops import report_uninitialized_variables as report_uninitialized_variables
from jflow.client.ops import scatter_add as scatter_add
from jflow.client.ops import scatter_div as scatter_div
from jflow.client.ops import scatter_max as scatter_max
from jflow.client.ops import scatter_min as scatter_min
from jflow.client.ops import scatter_mul as scatter_mul
from jflow.client.ops import scatter_nd_add as scatter_nd_add
from jflow.client.ops import scatter_nd_sub as scatter_nd_sub
from jflow.client.ops import scatter_nd_update as scatter_nd_update
from jflow.client.ops import scatter_sub as scatter_sub
from jflow.client.ops import scatter_update as scatter_update
from jflow.client.ops import string_join as string_join
from jflow.client.ops import string_split as string_split
from jflow.client.ops import string_strip as string_strip
from jflow.client.ops import string_to_number as string_to_number
from jflow.client.ops import substr as substr
from jflow.client.ops import trainable_variables as trainable_variables
from jflow.client.ops import variable_creator_scope as variable_creator_scope
from jflow.client.ops import variables_initializer as variables_initializer
from jflow.client.replay import Replay as Replay
from jflow.client.replay import ReplayedStep as ReplayedStep
from jflow.client.runtime.performance import performance_report as performance_report
from jflow.client.runtime.telemetry import opentelemetry_spans as opentelemetry_spans
from jflow.client.runtime.tracing import RunMetadata as RunMetadata
from jflow.client.runtime.tracing import trace_steps as trace_steps
from jflow.client.session import Session as Session
from jflow.client.variables import AUTO_REUSE as AUTO_REUSE
from jflow.client.variables import PartitionedVariable as PartitionedVariable
from jflow.client.variables import VariableScope as VariableScope
from jflow.client.variables import fixed_size_partitioner as fixed_size_partitioner
from jflow.client.variables import get_local_variable as get_local_variable
from jflow.client.variables import get_variable as get_variable
from jflow.client.variables import get_variable_scope as get_variable_scope
from jflow.client.variables import initializers as _initializers
from jflow.client.variables import min_max_variable_partitioner as min_max_variable_partitioner
from jflow.client.variables import no_regularizer as no_regularizer
from jflow.client.variables import set_random_seed as set_random_seed
from jflow.client.variables import variable_axis_size_partitioner as variable_axis_size_partitioner
from jflow.client.variables import variable_scope as variable_scope
from jflow.compiler.graph import AggregationMethod as AggregationMethod
from jflow.compiler.graph import Graph as Graph
from jflow.compiler.graph import GraphKeys as GraphKeys
from jflow.compiler.graph import Operation as Operation
from jflow.compiler.graph import Tensor as Tensor
from jflow.compiler.graph import colocate_with as colocate_with
from jflow.compiler.graph import container as container
from jflow.compiler.graph import control_dependencies as control_dependencies
from jflow.compiler.graph import device as device
from jflow.compiler.graph import get_default_graph as get_default_graph
from jflow.compiler.graph import get_default_session as get_default_session
from jflow.compiler.graph import gradients as gradients
from jflow.compiler.graph import loop as loop
from jflow.compiler.graph import name_scope as name_scope
from jflow.compiler.graph import reset_default_graph as reset_default_graph
from jflow.launch import LocalCluster as LocalCluster
from jflow.launch import ProgramRole as ProgramRole
from jflow.launch import RayCluster as RayCluster
from jflow.launch import TaskResources as TaskResources
from jflow.launch import run as run
from jflow.state.records import FixedLenFeature as FixedLenFeature
from jflow.state.records import FixedLenSequenceFeature as FixedLenSequenceFeature
from jflow.state.records import VarLenFeature as VarLenFeature
from jflow.training.optimizers.clipping import clip_by_global_norm as clip_by_global_norm
from jflow.training.optimizers.clipping import clip_by_norm as clip_by_norm
from jflow.training.optimizers.clipping import global_norm as global_norm

constant_initializer = _initializers.Constant
glorot_normal_initializer = _initializers.GlorotNormal
glorot_uniform_initializer = _initializers.GlorotUniform
ones_initializer = _initializers.Ones
orthogonal_initializer = _initializers.Orthogonal
random_normal_initializer = _initializers.RandomNormal
random_uniform_initializer = _initializers.RandomUniform
truncated_normal_initializer = _initializers.TruncatedNormal
variance_scaling_initializer = _initializers.VarianceScaling
zeros_initializer = _initializers.Zeros

_tracebacks.end_here(globals())
