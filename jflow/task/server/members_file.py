"""`StoredMembers`: the list of members of a cluster in a file of one task."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path

import msgspec

from jflow.base.cluster import Task
from jflow.base.files import replacing
from jflow.base.versions import prepared
from jflow.errors import DataLossError, FailedPreconditionError
from jflow.state.members import MemberList

MEMBERS_VARIABLE = "JFLOW_MEMBERS"


class StoredMembers:
    """A file with the list of members, as JSON, which is replaced as a whole.

    Args:
      path: the file, which need not exist; its directory has to.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._writing = threading.Lock()
        self._written = 0

    @classmethod
    def of(cls, task: Task, environ: Mapping[str, str] = os.environ) -> StoredMembers | None:
        """Returns the file of a task in the directory JFLOW_MEMBERS; None if that is not set."""
        directory = environ.get(MEMBERS_VARIABLE, "")
        return cls(Path(directory, f"{task.job}-{task.index}.json")) if directory else None

    def read(self, task: Task) -> MemberList | None:
        """Returns the list; None if there is no file.

        Args:
          task: the task that begins with the list.

        Raises:
          DataLossError: if the file has something else.
          FailedPreconditionError: if the task is not in the list.
          OSError: if it cannot be read.
        """
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            members = msgspec.json.decode(content, type=prepared(MemberList))
        except (msgspec.MsgspecError, ValueError) as error:
            raise DataLossError(
                f"{self._path} has no list of members ({error}); restore it from a backup, or "
                "remove it to begin with the cluster that the task is started with"
            ) from None
        if str(task) in members.addresses:
            return members
        heir = members.successor_of(task)
        why = f"has left, and {heir} has what was on it" if heir != task else "is not in it"
        raise FailedPreconditionError(
            f"{task} cannot start with the list of members in {self._path}: it {why}; join the "
            "cluster again (`jflow server --join`), or use another directory"
        )

    def write(self, members: MemberList) -> None:
        """Keeps a list; when this returns, it is on disk, or a later one. Any thread may call it.

        Raises:
          OSError: if that fails.
        """
        with self._writing:
            if members.epoch > self._written:
                with replacing(self._path, mode=0o600) as file:
                    file.write(msgspec.json.format(msgspec.json.encode(members)))
                self._written = members.epoch
