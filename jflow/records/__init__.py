"""Readers of record files, and decoders of records; plain Python on the host."""

from jflow.records.csv_file import CsvBlocks as CsvBlocks
from jflow.records.decoders import DECODERS as DECODERS
from jflow.records.example import encode_example as encode_example
from jflow.records.extras import needed as needed
from jflow.records.features import Column as Column
from jflow.records.features import Feature as Feature
from jflow.records.features import FixedLenFeature as FixedLenFeature
from jflow.records.features import FixedLenSequenceFeature as FixedLenSequenceFeature
from jflow.records.features import VarLenFeature as VarLenFeature
from jflow.records.features import as_columns as as_columns
from jflow.records.parquet_file import ParquetBlocks as ParquetBlocks
from jflow.records.reader import Records as Records
from jflow.records.sources import open_records as open_records
from jflow.records.summary import SUMMARIES as SUMMARIES
from jflow.records.summary import checked_summary as checked_summary
from jflow.records.summary import scalar_value as scalar_value
from jflow.records.tfrecord import TFRecordWriter as TFRecordWriter
