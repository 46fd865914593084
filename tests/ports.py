"""Ports and hosts for tests of programs that must know theirs before they start."""

from jflow.testing import free_hosts as free_hosts
from jflow.testing import free_ports as free_ports
