"""Sessions: run graphs in this process or on a cluster."""

from jflow.session.cancellable import CancellableSteps as CancellableSteps
from jflow.session.session import Session as Session
