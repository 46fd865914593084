"""Typed records and keyword arguments as canonical MessagePack, decoded strictly."""

from jflow.packing.decoder import Limits as Limits
from jflow.packing.forms import ByColumn as ByColumn
from jflow.packing.forms import Range as Range
from jflow.packing.keywords import Keywords as Keywords
from jflow.packing.record import Record as Record
from jflow.packing.record import pack as pack
from jflow.packing.record import unpack as unpack
