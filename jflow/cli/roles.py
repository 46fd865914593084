"""Roles of users as arguments of commands."""

from __future__ import annotations

import argparse

from jflow.base.roles import USER_ROLES, AccessRole

ROLES = ", ".join(map(str, USER_ROLES))
"""The roles that users may have, for help texts."""


def role_argument(text: str) -> AccessRole:
    """Returns the role that an argument names. Raises ArgumentTypeError if there is none."""
    try:
        return AccessRole.of_user(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
