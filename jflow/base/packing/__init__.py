"""Typed records and keyword arguments as canonical MessagePack, decoded strictly."""

from jflow.base.packing.decoder import Limits as Limits
from jflow.base.packing.forms import ByColumn as ByColumn
from jflow.base.packing.forms import Range as Range
from jflow.base.packing.keywords import Keywords as Keywords
from jflow.base.packing.record import Record as Record
from jflow.base.packing.record import pack as pack
from jflow.base.packing.record import unpack as unpack
