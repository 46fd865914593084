"""Readers of record files, and decoders of records; plain Python on the host."""

from jflow.state.records.csv_file import CsvBlocks as CsvBlocks
from jflow.state.records.example import encode_example as encode_example
from jflow.state.records.extras import needed as needed
from jflow.state.records.features import Column as Column
from jflow.state.records.features import Feature as Feature
from jflow.state.records.features import FixedLenFeature as FixedLenFeature
from jflow.state.records.features import FixedLenSequenceFeature as FixedLenSequenceFeature
from jflow.state.records.features import SparseFeature as SparseFeature
from jflow.state.records.features import VarLenFeature as VarLenFeature
from jflow.state.records.features import as_columns as as_columns
from jflow.state.records.formats import DECODERS as DECODERS
from jflow.state.records.formats import open_records as open_records
from jflow.state.records.parquet import ParquetBlocks as ParquetBlocks
from jflow.state.records.reader import Records as Records
from jflow.state.records.summary import SUMMARIES as SUMMARIES
from jflow.state.records.summary import checked_summary as checked_summary
from jflow.state.records.summary import scalar_value as scalar_value
from jflow.state.records.tfrecord import TFRecordCompressionType as TFRecordCompressionType
from jflow.state.records.tfrecord import TFRecordOptions as TFRecordOptions
from jflow.state.records.tfrecord import TFRecordWriter as TFRecordWriter
from jflow.state.records.tfrecord import compression_of as compression_of
