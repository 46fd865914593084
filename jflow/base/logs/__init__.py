"""Logs of servers: events with named fields, one line each, bounded in length and in number."""

from jflow.base.logs.events import Field as Field
from jflow.base.logs.events import LineFormatter as LineFormatter
from jflow.base.logs.events import event as event
from jflow.base.logs.setup import LogOptions as LogOptions
from jflow.base.logs.setup import RateLimit as RateLimit
from jflow.base.logs.setup import log_to_stderr as log_to_stderr
