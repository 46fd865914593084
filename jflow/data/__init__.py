"""Input pipelines in the user's process, on Grain: sources, transformations, kept positions."""

from jflow.data.dataset import Dataset as Dataset
from jflow.data.element import TensorSpec as TensorSpec
from jflow.data.generators import register_generator as register_generator
from jflow.data.iterator import DatasetIterator as DatasetIterator
from jflow.data.position import FilePosition as FilePosition
from jflow.data.position import PositionStore as PositionStore
from jflow.graph import tracebacks as _tracebacks

_tracebacks.end_here(globals())
