"""The token of this process: that of a cluster, or of one of its users.

The token of a cluster is created at its first use, in a file that only the user can read, so on one
machine nothing has to be set up. Several machines need copies of that file, or the variable
JFLOW_TOKEN.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from jflow.base.files import is_without_room, replace_file
from jflow.errors import (
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    ResourceExhaustedError,
)
from jflow.net.protocol.tokens import Secret, is_token_of_user
from jflow.net.wire.private_files import make_private_directory, read_private

_N_BYTES = 32
_MAX_LENGTH = 4096
MIN_LENGTH = 22
"""The least number of characters of a token that a user chose: those of 128 bits in base64."""

_HOW_TO_MAKE = (
    "use the token of the other tasks (~/.jflow/token where they run), or one for all of them "
    "from `python -c 'import secrets; print(secrets.token_hex(32))'`"
)


def load_token(environ: Mapping[str, str] = os.environ) -> str:
    """Loads the token: from JFLOW_TOKEN, else the file JFLOW_TOKEN_FILE, else ~/.jflow/token.

    Only the default file is created if it is missing: a new token in a file that was named would
    differ from that of the other tasks.

    Raises:
      PermissionDeniedError: if the file cannot be read, other users may read or replace it, or it
        is another user's.
      NotFoundError: if the file that JFLOW_TOKEN_FILE names does not exist.
      ResourceExhaustedError: if the default file cannot be created, as the disk is full.
      InvalidArgumentError: if the token is too short or not printable ASCII, as headers require.
    """
    text = environ.get("JFLOW_TOKEN", "").strip()
    if text:
        return _check_token(text, "JFLOW_TOKEN")
    file_name = environ.get("JFLOW_TOKEN_FILE")
    path = Path(file_name) if file_name else Path.home() / ".jflow" / "token"
    try:
        if not path.exists():
            if file_name:
                raise NotFoundError(
                    f"JFLOW_TOKEN_FILE names {file_name!r}, which does not exist; {_HOW_TO_MAKE}"
                )
            _create(path)
        token = read_private(path)[:_MAX_LENGTH].decode().strip()
    except PermissionDeniedError as error:
        raise PermissionDeniedError(f"the token file: {error.message}; {_HOW_TO_MAKE}") from None
    except OSError as error:
        if is_without_room(error):
            raise ResourceExhaustedError(
                f"cannot make the token file {path}: {error.strerror}; make room, or set "
                "JFLOW_TOKEN"
            ) from error
        raise PermissionDeniedError(f"cannot read the token file {path}: {error}") from error
    except UnicodeDecodeError as error:
        raise PermissionDeniedError(f"cannot read the token file {path}: {error}") from error
    if not token:
        raise PermissionDeniedError(
            f"the token file {path} must contain a token; delete it to get a new one, or "
            f"{_HOW_TO_MAKE}"
        )
    return _check_token(token, f"the token file {path}")


def _check_token(token: str, source: str) -> str:
    if len(token) < MIN_LENGTH:
        raise InvalidArgumentError(
            f"{source} has a token of {len(token)} characters; at least {MIN_LENGTH} are required "
            f"so that it cannot be guessed; {_HOW_TO_MAKE}"
        )
    if not (token.isascii() and token.isprintable()):
        raise InvalidArgumentError(
            f"{source} has a token with characters that are not printable ASCII; {_HOW_TO_MAKE}"
        )
    if is_token_of_user(token) and Secret(token).id is None:
        raise InvalidArgumentError(
            f"{source} begins as the token of a user does and is none, perhaps only a part of it; "
            "expected all of what `jflow token make` or `jflow token rotate` has printed"
        )
    return token


def _create(path: Path) -> None:
    make_private_directory(path.parent)
    # Written to another file and linked into place, so that concurrent first uses get one token.
    temporary = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    replace_file(temporary, secrets.token_hex(_N_BYTES), mode=0o600)
    try:
        os.link(temporary, path)
    except FileExistsError:
        pass
    finally:
        temporary.unlink()
