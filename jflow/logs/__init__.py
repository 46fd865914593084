"""What servers log: events with named fields, one line each, bounded in length and in number."""

from jflow.logs.events import event as event
from jflow.logs.formatter import LineFormatter as LineFormatter
from jflow.logs.rates import RateLimit as RateLimit
from jflow.logs.setup import LogOptions as LogOptions
from jflow.logs.setup import log_to_stderr as log_to_stderr
