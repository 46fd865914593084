"""`AccessRole`: what the token of a caller allows; each role allows what the lower ones do."""

from __future__ import annotations

from enum import IntEnum


class AccessRole(IntEnum):
    """The role of a caller, or the least role that something needs.

    Attributes:
      READ: inspects the cluster, and runs steps that only read variables.
      USE: runs all steps, saves, restores and moves, with the state that the user may use.
      OPERATE: what concerns all users: resets, claims, stops, the state of others.
      CLUSTER: is a task, or a client with the token of the cluster; no user has it.
    """

    READ = 1
    USE = 2
    OPERATE = 3
    CLUSTER = 4

    def __str__(self) -> str:
        return self.name.lower()

    @classmethod
    def of_user(cls, text: str) -> AccessRole:
        """Returns the role of a user that a text such as "use" names.

        Raises:
          ValueError: if there is no such role.
        """
        for role in USER_ROLES:
            if str(role) == text:
                return role
        raise ValueError(f"there is no role {text!r}; expected {', '.join(map(str, USER_ROLES))}")


USER_ROLES = (AccessRole.READ, AccessRole.USE, AccessRole.OPERATE)
"""The roles that users may have, from the lowest to the highest."""
