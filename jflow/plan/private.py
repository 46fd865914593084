"""Private containers: those of one session, which has its own copy of every variable.

Names of containers that programs can choose have no "@", so a private container is told by its
name alone, wherever names of state travel.
"""

_MARK = "@"


def private_container(container: str, owner: str) -> str:
    """The container that a session has in place of one that is shared."""
    return f"{container}{_MARK}{owner}"


def owner_of(container: str) -> str:
    """The session that a container belongs to, "" if it is shared."""
    return container.rpartition(_MARK)[2] if _MARK in container else ""
