"""Sessions: run graphs in this process or on a cluster."""

from jflow.session.cancellation import Cancellation as Cancellation
from jflow.session.session import Session as Session
