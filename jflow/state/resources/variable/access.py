"""The order in which steps access variables.

A step requests all variables of a program at once. Requests with variables in common are granted in
order of arrival, so that steps on several variables cannot deadlock and none starves. Writes are
exclusive from the grant until `end_access`. Reads are not held: a step reads the variables at the
moment of the grant (`Access.take`), when nothing is writing them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, MutableMapping

from jflow.errors import OpError
from jflow.state.quotas import UNKNOWN, ChargedSession
from jflow.state.resources.attempt import Attempt, Resource


class Access(Attempt, ABC):
    """A request to read some variables and to write others.

    Attributes:
      reads: the keys of the variables that it only reads.
      writes: the keys of the variables that it writes, each once; a dict spares hashing them.
      lost: the keys of written variables that were freed while it wrote.
      reserved: the bytes that are charged for variables that it will make; what makes one takes
        them. None if there are none.
    """

    __slots__ = ("lost", "reads", "reserved", "writes")

    def __init__(self, reads: Collection[Hashable], writes: Collection[Hashable]) -> None:
        super().__init__()
        self.reads = reads
        self.writes = writes
        self.lost: Collection[Hashable] = ()
        self.reserved: MutableMapping[Hashable, int] | None = None

    @property
    def creator(self) -> ChargedSession:
        """The session that variables are charged to which the access makes."""
        return UNKNOWN

    @abstractmethod
    def take(self) -> None:
        """Reads the variables; called once, at the grant.

        An OpError fails the access, which must have taken nothing then.
        """

    def taken_reservation(self, key: Hashable) -> int:
        """Returns the bytes that are charged for a variable already, and leaves them to it."""
        return self.reserved.pop(key, 0) if self.reserved else 0

    @abstractmethod
    def put(self) -> None:
        """Sets the variables that have new values; called once, at the end of the access."""

    @abstractmethod
    def rollback(self) -> None:
        """Releases what it took, because the access was granted but is not used."""

    @abstractmethod
    def reason(self, ahead: Access, writer: Access) -> str:
        """Describes why the access waits, as "waited for ...".

        Args:
          ahead: the access it waits for, because of a variable in common.
          writer: the granted access at the end of this chain; `ahead` if that does not wait.
        """

    def activity(self) -> str:
        """Describes an access that writes, for messages of those that wait for it."""
        return "another step writes"

    def all_keys(self) -> Iterator[Hashable]:
        """The keys of all variables that the access reads or writes."""
        yield from self.reads
        yield from self.writes


class Cut(Attempt, ABC):
    """A request to read variables at one moment without making any access wait.

    It reads each variable once all accesses that were granted before its submission have ended,
    and before any later one can change it.

    Attributes:
      keys: the keys of the variables to read.
      n_missing: the number of variables that it has yet to read.
    """

    __slots__ = ("keys", "n_missing")

    def __init__(self, keys: Iterable[Hashable]) -> None:
        super().__init__()
        self.keys = frozenset(keys)
        self.n_missing = 0

    @abstractmethod
    def take(self, key: Hashable) -> None:
        """Reads one variable, which may not exist; called once for each key."""

    @abstractmethod
    def rollback(self) -> None:
        """Releases what it took, because the cut failed or nothing read its values."""


class AccessQueue(Resource):
    """The queue of accesses to variables; a granted access is a completed attempt.

    Invariant: an access stands in the wait queues of all its variables from one moment on, so any
    two of these queues contain the same accesses in the same order. "Waits for" therefore always
    points to an earlier access and has no cycles: there is no deadlock, and the oldest one is next.
    """

    def __init__(self) -> None:
        self._writers: dict[Hashable, Access] = {}
        # For each variable that is being written, the cuts that began since and have to read it.
        self._cuts: dict[Hashable, list[Cut]] = {}
        # For each variable the accesses that wait, in order of arrival.
        self._queues: dict[Hashable, OrderedDict[Access, None]] = {}

    def submit(self, attempt: Attempt) -> list[Attempt]:
        if isinstance(attempt, Cut):
            return self._begin_cut(attempt)
        assert isinstance(attempt, Access)
        if self.try_grant(attempt):
            return [attempt]
        for key in attempt.all_keys():
            self._queues.setdefault(key, OrderedDict())[attempt] = None
        return []

    def try_grant(self, access: Access) -> bool:
        """Grants or fails an access; returns False, without enqueueing it, if it must wait."""
        if (self._writers or self._queues) and self._blocker(access) is not None:
            return False
        self._grant(access)
        return True

    def end_access(self, access: Access) -> list[Attempt]:
        """Ends a granted access. Returns the attempts that this completes, in order."""
        writers, writes = self._writers, access.writes
        is_alone = len(writers) == len(writes) and not access.lost
        if is_alone and writers.get(next(iter(writes), None)) is access:
            writers.clear()  # it has all that it was granted, and nothing else is granted
        else:
            for key in writes:
                if writers.get(key) is access:
                    del writers[key]
        cut = self._read_cuts(access.writes) if self._cuts else []
        return cut + self._go_on(access.writes) if self._queues else cut

    def cancel(self, attempt: Attempt, error: OpError) -> list[Attempt]:
        if attempt.is_complete:
            return []
        if isinstance(attempt, Cut):
            self._fail_cut(attempt, error)
            return [attempt]
        assert isinstance(attempt, Access)
        self._leave(attempt)
        attempt.fail(error)
        return [attempt, *self._go_on(attempt.all_keys())]

    def unread(self, attempt: Attempt) -> list[Attempt]:
        assert isinstance(attempt, Access | Cut)
        attempt.rollback()
        return self.end_access(attempt) if isinstance(attempt, Access) else []

    def free(self, is_freed: Callable[[Hashable], bool]) -> list[Attempt]:
        """Revokes the write access to freed variables, without waiting for the programs.

        Returns:
          All attempts that this completed, in order.
        """
        freed = [key for key in self._writers if is_freed(key)]
        for key in freed:
            writer = self._writers.pop(key)
            writer.lost = {*writer.lost, key}
        return [*self._read_cuts(freed), *self._go_on(freed)]

    def waiting(self) -> Iterable[Attempt]:
        queued = (attempt for queue in self._queues.values() for attempt in queue)
        cuts = (cut for cuts in self._cuts.values() for cut in cuts)
        return [*dict.fromkeys(queued), *dict.fromkeys(cuts)]

    def reason(self, attempt: Attempt) -> str:
        if isinstance(attempt, Cut):
            keys = [key for key, cuts in self._cuts.items() if attempt in cuts]
            return f"waited for {keys[0]}, which another step writes" if keys else ""
        assert isinstance(attempt, Access)
        ahead = writer = next(self._blockers(attempt), None)
        # This terminates, because an access is blocked by a granted or an earlier one only.
        while writer is not None and (before := next(self._blockers(writer), None)) is not None:
            writer = before
        return "" if ahead is None or writer is None else attempt.reason(ahead, writer)

    def _begin_cut(self, cut: Cut) -> list[Attempt]:
        for key in cut.keys:
            if key in self._writers:
                self._cuts.setdefault(key, []).append(cut)
                cut.n_missing += 1
            else:
                cut.take(key)
        if cut.n_missing:
            return []
        cut.succeed()
        return [cut]

    def _read_cuts(self, free: Iterable[Hashable]) -> list[Attempt]:
        """Lets waiting cuts read variables whose writer has ended, before the next grant."""
        completed: list[Attempt] = []
        for key in free:
            if key in self._writers:
                continue  # it was freed from the ended access, and another one writes it
            for cut in self._cuts.pop(key, ()):
                cut.take(key)
                cut.n_missing -= 1
                if not cut.n_missing:
                    cut.succeed()
                    completed.append(cut)
        return completed

    def _fail_cut(self, cut: Cut, error: OpError) -> None:
        for key in [key for key, cuts in self._cuts.items() if cut in cuts]:
            self._cuts[key].remove(cut)
            if not self._cuts[key]:
                del self._cuts[key]
        cut.rollback()
        cut.fail(error)

    def _blocker(self, access: Access) -> Access | None:
        """Returns an access that must be granted or end before this one; None if there is none."""
        for key in access.all_keys():
            writer = self._writers.get(key)
            if writer is not None:
                return writer
            for other in self._queues.get(key, ()):
                if other is access:
                    break
                if key in other.writes or key in access.writes:
                    return other
        return None

    def ahead(self, access: Access) -> set[Access]:
        """Returns all accesses that must be granted or end before this one, even indirectly."""
        earlier: set[Access] = set()
        unseen = [access]
        while unseen:
            for other in self._blockers(unseen.pop()):
                if other not in earlier:
                    earlier.add(other)
                    unseen.append(other)
        return earlier

    def _blockers(self, access: Access) -> Iterator[Access]:
        """Yields the accesses that block a waiting access directly."""
        if access.is_complete:
            return
        for key in access.all_keys():
            if (writer := self._writers.get(key)) is not None:
                yield writer
            for other in self._queues.get(key, ()):
                if other is access:
                    break
                if key in other.writes or key in access.writes:
                    yield other

    def _grant(self, access: Access) -> None:
        try:
            access.take()
        except OpError as error:
            access.fail(error)
            return
        self._writers.update(dict.fromkeys(access.writes, access))
        access.succeed()

    def _leave(self, access: Access) -> None:
        for key in access.all_keys():
            queue = self._queues.get(key)
            if queue is not None:
                queue.pop(access, None)
                if not queue:
                    del self._queues[key]

    def _go_on(self, changed: Iterable[Hashable]) -> list[Attempt]:
        """Grants waiting accesses after variables became free or their wait queues shorter."""
        completed: list[Attempt] = []
        keys = [*changed]
        while keys:
            key = keys.pop()
            for access in [*self._queues.get(key, ())]:
                if self._blocker(access) is None:
                    self._leave(access)
                    self._grant(access)
                    completed.append(access)
                    # It has left the queues of all its variables, but holds only some of them.
                    keys.extend(access.all_keys())
                elif key in access.writes:
                    break  # every later access to this variable waits for it
        return completed
