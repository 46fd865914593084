"""Input pipelines on Grain in the user's process: sources, transforms and saved positions."""

from jflow.base import tracebacks as _tracebacks
from jflow.base.values import TensorSpec as TensorSpec
from jflow.data.dataset import Dataset as Dataset
from jflow.data.decoders import decode_csv as decode_csv
from jflow.data.decoders import decode_image as decode_image
from jflow.data.decoders import decode_jpeg as decode_jpeg
from jflow.data.decoders import decode_png as decode_png
from jflow.data.decoders import decode_raw as decode_raw
from jflow.data.decoders import encode_jpeg as encode_jpeg
from jflow.data.decoders import encode_png as encode_png
from jflow.data.decoders import parse_example as parse_example
from jflow.data.decoders import parse_single_example as parse_single_example
from jflow.data.iterator import DatasetIterator as DatasetIterator
from jflow.data.iterator import FilePosition as FilePosition
from jflow.data.iterator import PositionStore as PositionStore
from jflow.data.sources import register_generator as register_generator
from jflow.state.records import TFRecordWriter as TFRecordWriter
from jflow.state.records import encode_example as encode_example

_tracebacks.end_here(globals())

from_tensor_slices = Dataset.from_tensor_slices
