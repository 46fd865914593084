"""Files of records, and the decoders of what is in them; plain Python on the host."""

from jflow.records.reader import Records as Records
from jflow.records.roots import Roots as Roots
from jflow.records.sources import open_records as open_records
from jflow.records.tfrecord import TFRecordWriter as TFRecordWriter
