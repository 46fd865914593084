"""The client's handle on a running graph, local or on a cluster."""

from jflow.session.session import Session as Session
