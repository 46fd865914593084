"""Backends say how their tasks reach each other."""

from __future__ import annotations

from jflow.base.cluster import LOCAL_TASK, Task, Wiring
from jflow.base.deadline import FOREVER
from jflow.base.options import ConfigProto
from jflow.client.runtime.target import open_backend
from tests.clusters import in_process


def test_tasks_with_one_host_in_their_addresses_are_near() -> None:
    with in_process() as backend:
        opened = open_backend(backend.target, ConfigProto())
        wiring = opened.inventory((), FOREVER).wiring
        opened.close()
    assert wiring.link_class(Task("worker", 0), Task("ps", 0)) == "grpc/host"
    assert wiring.link_class(Task("ps", 0), Task("ps", 0)) == "process"
    assert wiring.master == Task("worker", 0)


def test_this_process_needs_no_transport() -> None:
    opened = open_backend("", ConfigProto())
    wiring = opened.inventory((), FOREVER).wiring
    opened.close()
    assert wiring.transport == "process"
    assert wiring.link_class(LOCAL_TASK, LOCAL_TASK) == "process"


def test_the_master_reaches_the_other_tasks() -> None:
    a, b, c = (Task("worker", i) for i in range(3))
    known = Wiring("ring", {}, master=a)
    assert [known.n_further(tasks) for tasks in ([a], [b], [a, b], [b, c])] == [0, 1, 1, 2]
    assert [Wiring().n_further(tasks) for tasks in ([a], [b, c])] == [0, 1]


def test_tasks_of_different_hosts_are_on_a_network() -> None:
    a, b, c = (Task("worker", i) for i in range(3))
    wiring = Wiring("ring", {a: "one", b: "two", c: "one"})
    assert wiring.link_class(a, b) == "ring/network"
    assert wiring.link_class(a, c) == "ring/host"
