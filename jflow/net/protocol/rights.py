"""`Rights`: what a caller may do, by its role and by the names of containers and paths. No I/O.

A container belongs to the user whose name is the first part of its own: "ann" and "ann/run" belong
to ann. A path of a checkpoint belongs to each user whose name is a part of it. What belongs to no
user is *shared*.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from jflow.base.roles import AccessRole
from jflow.errors import PermissionDeniedError
from jflow.plan import shared_container
from jflow.state.moves import StateId

_NO_ROLES: Mapping[str, AccessRole] = MappingProxyType({})


class Rights(NamedTuple):
    """What a caller may do at the moment.

    Attributes:
      role: its role.
      user: the user whose token it has; "" for the token of the server.
      users: the users of the cluster, to which state may belong, and their roles.
    """

    role: AccessRole
    user: str = ""
    users: Mapping[str, AccessRole] = _NO_ROLES

    def refusal(self, needs: AccessRole, doing: str) -> PermissionDeniedError:
        """Returns the error for what the role does not allow.

        Args:
          needs: the least role that does.
          doing: what the caller would do.
        """
        needed = (
            "the token of the cluster"
            if needs == AccessRole.CLUSTER
            else f"the role {str(needs)!r}"
        )
        return PermissionDeniedError(f"{self}, and {doing} needs {needed}; {self._advice(needs)}")

    def check_states(self, states: Iterable[StateId]) -> None:
        """Checks that the caller may use state, as the containers say in which it is.

        Raises:
          PermissionDeniedError: if some of it belongs to another user.
        """
        if self.role >= AccessRole.OPERATE:
            return
        for state in states:
            owner = self._owner_of(state.container)
            if owner not in ("", self.user):
                raise PermissionDeniedError(
                    f"{state} belongs to the user {owner!r}, and {self}, which does not allow the "
                    "use of what belongs to others; use a container of your own, as in "
                    f"`with jflow.container({(self.user or 'shared') + '/run'!r}):`, or a shared "
                    f"one, or {self._advice(AccessRole.OPERATE)}"
                )

    def check_path(self, path: str) -> None:
        """Checks that the caller may use the path of a checkpoint, as the names in it say.

        Raises:
          PermissionDeniedError: if it belongs to another user, or goes upwards.
        """
        if self.role >= AccessRole.OPERATE:
            return
        parts = path.lower().split("/")
        owner = next((part for part in parts if part in self.users and part != self.user), "")
        if owner or ".." in parts:
            reason = f"belongs to the user {owner!r}" if owner else "contains '..'"
            raise PermissionDeniedError(
                f"the path {path!r} {reason}, and {self}, which does not allow the use of what "
                "belongs to others; use a directory that is named as you are, or one without the "
                f"name of another user in its path, or {self._advice(AccessRole.OPERATE)}"
            )

    def _owner_of(self, container: str) -> str:
        """Returns the user that a container belongs to; "" if it is shared."""
        name = shared_container(container).partition("/")[0]
        return name if name in self.users else ""

    def _advice(self, role: AccessRole) -> str:
        if role == AccessRole.CLUSTER:
            return "no user may do it"
        if not self.user:
            return "use another certificate of a client (`jflow certs init`)"
        command = f"`jflow token role {self.user} {role}`, where the servers run"
        return f"ask the operators of the cluster for another role ({command})"

    def __str__(self) -> str:
        caller = f"the user {self.user!r}" if self.user else "the certificate of this client"
        return f"{caller} has the role {str(self.role)!r}"


ALL_RIGHTS = Rights(AccessRole.CLUSTER)
"""The rights of a caller with the token of the cluster."""
