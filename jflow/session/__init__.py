"""Sessions: run graphs in this process or on a cluster."""

from jflow.session.session import Session as Session
