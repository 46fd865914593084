"""Converts file system errors to errors of jflow."""

from __future__ import annotations

import errno

from jflow.errors import (
    AlreadyExistsError,
    DataLossError,
    FailedPreconditionError,
    NotFoundError,
    OpError,
    PermissionDeniedError,
    ResourceExhaustedError,
    UnknownError,
)

_CLASSES: dict[int, type[OpError]] = {
    errno.ENOENT: NotFoundError,
    errno.ENOTDIR: NotFoundError,
    errno.ENAMETOOLONG: NotFoundError,
    errno.EEXIST: AlreadyExistsError,
    errno.EACCES: PermissionDeniedError,
    errno.EPERM: PermissionDeniedError,
    errno.EROFS: PermissionDeniedError,
    errno.ELOOP: PermissionDeniedError,
    errno.ENOSPC: ResourceExhaustedError,
    errno.EDQUOT: ResourceExhaustedError,
    errno.EFBIG: ResourceExhaustedError,
    errno.EMFILE: ResourceExhaustedError,
    errno.ENFILE: ResourceExhaustedError,
    errno.ENOMEM: ResourceExhaustedError,
    errno.EIO: DataLossError,
    errno.ENXIO: FailedPreconditionError,
    errno.EISDIR: FailedPreconditionError,
}
_HINTS = {errno.ELOOP: "; it is a link, which checkpoints do not follow"}


def failure(error: OSError, path: str, doing: str) -> OpError:
    """Returns the error of jflow for an OSError.

    Args:
      error: the failure.
      path: the file.
      doing: what cannot be done with it, such as "written after 10 of 20 bytes".
    """
    reason = error.strerror or str(error)
    hint = _HINTS.get(error.errno or 0, "")
    return error_class(error)(f"{path!r} cannot be {doing}: {reason}{hint}")


def error_class(error: OSError) -> type[OpError]:
    """Returns the error class for an OSError; UnknownError for unlisted ones."""
    return _CLASSES.get(error.errno or 0, UnknownError)
