"""The thread on which a coordinator publishes its status and follows its cluster's members."""

from __future__ import annotations

import threading
from typing import Any

from jflow.testing import wait_until
from jflow.training.coordinator import exchange


class Cluster:
    """A connection whose list of members has a new epoch each time."""

    def __init__(self) -> None:
        self.published: list[Any] = []
        self.epoch = 0

    def publish_coordinator(self, status: Any, _: Any) -> None:
        self.published.append(status)

    def members(self, _: Any) -> Any:
        self.epoch += 1
        return self


def test_the_status_is_published_although_the_members_cannot_be_taken(monkeypatch: Any) -> None:
    monkeypatch.setattr(exchange, "_PERIOD_S", 0.01)
    cluster, closed, epochs = Cluster(), threading.Event(), []
    statuses = iter(range(1000))

    def changed(members: Cluster) -> None:
        epochs.append(members.epoch)
        raise KeyError(len(epochs))

    arguments: Any = (cluster, closed, lambda: next(statuses), changed)
    exchange.exchange_with_cluster(*arguments)
    wait_until(lambda: len(epochs) > 2 and len(cluster.published) > 2, "the next members")
    closed.set()
    wait_until(lambda: cluster.published[-1] is None, "the end of what is published")
