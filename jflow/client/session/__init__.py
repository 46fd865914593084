"""Sessions, which run graphs in this process or on a cluster."""

from jflow.client.session.cancellable import CancellableSteps as CancellableSteps
from jflow.client.session.interactive import InteractiveSession as InteractiveSession
from jflow.client.session.session import Session as Session
