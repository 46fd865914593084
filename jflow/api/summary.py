"""The names of `jflow.summary`: what TensorBoard shows of steps."""

from jflow.base import tracebacks as _tracebacks
from jflow.client.ops.summaries import histogram as histogram
from jflow.client.ops.summaries import image as image
from jflow.client.ops.summaries import merge as merge
from jflow.client.ops.summaries import merge_all as merge_all
from jflow.client.ops.summaries import scalar as scalar
from jflow.client.ops.summaries import text as text
from jflow.training.event_files import FileWriter as FileWriter
from jflow.training.event_files import FileWriterCache as FileWriterCache
from jflow.training.event_files import create_file_writer as create_file_writer

_tracebacks.end_here(globals())
