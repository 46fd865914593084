"""What the path of a checkpoint means to the tasks that write or read it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from jflow.base.cluster import Task
from jflow.errors import InvalidArgumentError
from jflow.net.wire import file_system_id

_REMOTE = "://"


def path_on_tasks(path: str, file_systems: Mapping[Task, str]) -> str:
    """The path that a cluster is given for a path of this process.

    A relative path is one of the working directory of this process, which only tasks that see the
    same files can reach. An absolute path, or a URL, is one of each task.

    Args:
      path: the path.
      file_systems: of the tasks that write or read it, as `file_system_id` identifies them.

    Returns:
      An absolute path without links in its directory, or the path itself if that is not relative.

    Raises:
      InvalidArgumentError: if it is relative, and a task does not see the files of this process.
    """
    if os.path.isabs(path) or _REMOTE in path or "\0" in path:
        return path
    own = file_system_id()
    others = [task for task, found in file_systems.items() if not own or found != own]
    if others:
        names = ", ".join(map(str, others))
        raise InvalidArgumentError(
            f"{path!r} is relative to the working directory of this process, whose files {names} "
            "does not see: it is on another machine, or in a container of its own; use an absolute "
            "path that means one directory on all tasks with saved state, or a URL such as "
            "'gs://bucket/model'",
            task=str(others[0]),
        )
    directory, name = os.path.split(path)
    return os.path.join(os.path.realpath(directory), name)
