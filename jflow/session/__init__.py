"""The client's handle on a running graph, local or on a cluster."""

from jflow.session.config import ConfigProto as ConfigProto
from jflow.session.config import RunOptions as RunOptions
from jflow.session.session import Session as Session
