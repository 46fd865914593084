"""Summaries of steps for TensorBoard, under TensorFlow's name tf.summary."""

from jflow.api import root as _root  # noqa: F401 - tracebacks end at methods of what it exports
from jflow.api.missing import refuse_missing as _refuse_missing
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

__getattr__ = _refuse_missing(globals())

_tracebacks.end_here(globals())
