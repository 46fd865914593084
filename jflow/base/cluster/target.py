"""`Target`: the server that a client or another server wants to reach."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self
from urllib.parse import parse_qsl

from jflow.base.cluster.address import join_address, split_address
from jflow.base.cluster.device import Task

_MAX_NAME = 128
_WORDS = ("cluster", "task", "at")


@dataclass(frozen=True)
class Target:
    """The address and the expected identity of a server; one with another identity refuses.

    Attributes:
      address: the address to connect to, "host:port".
      cluster: the name of its cluster; "" if that is not known.
      task: its task; None if that is not known.
      incarnation: which life of its process; 0 for any.
      at: its own address, if `address` is that of a tunnel or proxy that leads to it; given, the
        server may be on another machine although `address` is one of this machine only.
    """

    address: str
    cluster: str = ""
    task: Task | None = None
    incarnation: int = 0
    at: str = ""

    @property
    def own_address(self) -> str:
        """The address at which the server itself should listen."""
        return self.at or self.address

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses "grpc://host:port?cluster=name&task=/job:ps/task:0&at=host:port".

        Everything but the host may be omitted.

        Raises:
          ValueError: if it is malformed.
        """
        address, mark, query = text.partition("?")
        parameters = _parse_query(query, text) if mark else {}
        task = Task.parse(parameters["task"]) if "task" in parameters else None
        at = join_address(*split_address(parameters["at"])) if "at" in parameters else ""
        cluster = checked_cluster_name(parameters.get("cluster", ""))
        return cls(join_address(*split_address(address)), cluster, task, at=at)


def checked_cluster_name(name: str) -> str:
    """Returns the name of a cluster after checking it.

    Raises:
      ValueError: if it is longer than 128 characters, or has others than printable ASCII.
    """
    if len(name) > _MAX_NAME or not name.isascii() or not name.isprintable():
        raise ValueError(
            f"the name of a cluster must be at most {_MAX_NAME} printable ASCII characters, "
            f"got {name[: 2 * _MAX_NAME]!r}"
        )
    return name


def _parse_query(query: str, text: str) -> Mapping[str, str]:
    """Parses the query parameters of a target."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True)
    except ValueError as error:
        raise ValueError(f"the target {text!r} is malformed: {error}") from None
    words = dict(pairs)
    if len(words) < len(pairs) or not words.keys() <= {*_WORDS}:
        raise ValueError(
            f"the target {text!r} must have each of {', '.join(_WORDS)} at most once behind '?', "
            f"and nothing else; got {[name for name, _ in pairs]}"
        )
    return words
