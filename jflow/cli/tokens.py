"""`jflow token`: gives the users of a cluster tokens of their own, and takes them back."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from jflow.base.files import replace_file
from jflow.base.roles import AccessRole
from jflow.base.text import table
from jflow.cli.roles import ROLES, role_argument
from jflow.errors import PermissionDeniedError

if TYPE_CHECKING:
    from jflow.net.protocol.tokens import Secret

_EPILOG = """\
Run it with the token of the cluster, where one of its servers runs: the servers read the file of
users (JFLOW_USERS_FILE, else ~/.jflow/users.json) again when it has changed. All machines of the
cluster need the same file. See docs/security.md.
"""

_MAX_HOURS = 24 * 366 * 10
"""The longest time that former tokens may be kept, ten years."""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command to those of `jflow`."""
    token = commands.add_parser(
        "token", help="the tokens of the users of a cluster", epilog=_EPILOG
    )
    what = token.add_subparsers(required=True, metavar="WHAT")

    make = what.add_parser("make", help="adds a user, and prints the token for them")
    _add_user(make)
    make.add_argument(
        "--role",
        type=role_argument,
        metavar="ROLE",
        help=f"what they may do: {ROLES} (default: their former role, else {AccessRole.OPERATE})",
    )
    _add_output(make)
    make.set_defaults(run=_make)

    what.add_parser("list", help="the users and their tokens").set_defaults(run=_list)

    rotate = what.add_parser("rotate", help="gives a user another token, and prints it")
    _add_user(rotate)
    rotate.add_argument(
        "--keep-hours",
        type=float,
        default=0.0,
        metavar="N",
        help="how long their former tokens are still accepted (default: not at all)",
    )
    _add_output(rotate)
    rotate.set_defaults(run=_rotate)

    role = what.add_parser(
        "role", help="gives a user another role; their sessions end if it is a lower one"
    )
    _add_user(role)
    role.add_argument("role", type=role_argument, metavar="ROLE", help=f"what they may do: {ROLES}")
    role.set_defaults(run=_set_role)

    revoke = what.add_parser(
        "revoke", help="removes the tokens of a user; their sessions end within about a second"
    )
    _add_user(revoke)
    revoke.set_defaults(run=_revoke)


def _add_user(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("user", metavar="USER", help="the name of the user")


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="writes it to a file that only this user can read, for JFLOW_TOKEN_FILE, and does not "
        "print it",
    )


def _make(options: argparse.Namespace) -> None:
    from jflow.net.wire.users import make_token, users_path  # noqa: PLC0415 - see `cluster_secret`

    secret = cluster_secret()
    _give(secret.token_of(make_token(users_path(), options.user, options.role)), options)


def _rotate(options: argparse.Namespace) -> None:
    from jflow.net.wire.users import rotate_token, users_path  # noqa: PLC0415 - see `cluster_secret`

    if not 0 <= options.keep_hours <= _MAX_HOURS:
        raise ValueError(f"--keep-hours must be from 0 to {_MAX_HOURS}, got {options.keep_hours:g}")
    secret, keep_s = cluster_secret(), 3600 * options.keep_hours
    _give(secret.token_of(rotate_token(users_path(), options.user, keep_s)), options)


def _set_role(options: argparse.Namespace) -> None:
    from jflow.net.wire.users import set_role, users_path  # noqa: PLC0415 - see `cluster_secret`

    set_role(users_path(), options.user, options.role)


def _revoke(options: argparse.Namespace) -> None:
    from jflow.net.wire.users import revoke_tokens, users_path  # noqa: PLC0415 - see `cluster_secret`

    revoke_tokens(users_path(), options.user)


def cluster_secret() -> Secret:
    """Returns the token of the cluster, of which others are made.

    Raises:
      PermissionDeniedError: if this process has that of a user.
      OpError: as `load_secret`.
    """
    from jflow.net.wire import load_secret  # noqa: PLC0415 - other commands need no transport

    secret = load_secret()
    if secret.id is not None:
        raise PermissionDeniedError(
            f"this process has the token of the user {secret.id.user!r}; other tokens are made "
            "of that of the cluster: unset JFLOW_TOKEN and JFLOW_TOKEN_FILE, or set one to it"
        )
    return secret


def _give(token: str, options: argparse.Namespace) -> None:
    """Prints or writes the token of a user."""
    output = options.output
    if output is None:
        print(token)
        return
    try:
        replace_file(output, f"{token}\n", mode=0o600)
    except OSError as error:
        raise ValueError(
            f"the token cannot be written to {output}: {error}; `jflow token rotate "
            f"{options.user}` makes another one"
        ) from error


def _list(_: argparse.Namespace) -> None:
    from jflow.net.wire.users import read_users, users_path  # noqa: PLC0415 - see `cluster_secret`

    rows = []
    for user, entry in sorted(read_users(users_path()).items()):
        for serial, token in sorted(entry.tokens.items(), key=lambda item: item[1].made):
            accepted = _until(token.until, token.has_expired)
            rows.append((user, entry.role, serial, _date(token.made), accepted))
        if not entry.tokens:
            rows.append((user, entry.role, "none", "", "no longer"))
    print(table(("USER", "ROLE", "TOKEN", "MADE", "ACCEPTED"), rows))


def _until(until: float | None, has_expired: bool) -> str:
    if until is None:
        return "yes"
    return "no longer" if has_expired else f"until {_date(until)}"


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%MZ")
