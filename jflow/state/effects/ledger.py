"""`Ledger`: which attempts of which steps a task is running, has staged or has applied.

An attempt that begins on a task runs and then waits, *staged*, for a decision: commit or abort. A
step that writes on one task only is *applied* by that task itself. In both cases the ledger keeps
what came out of it, until the client has acknowledged the step, and answers a later attempt with
that. The rules:

* One attempt of a step is active on a task at a time, and at most one is ever committed.
* `take_over` raises the *fence* of a step. Attempts below the fence neither begin nor are staged,
  and what has been staged is decided by that attempt, no longer by its own master. So the answer
  to `take_over` does not change until that decision, and late messages of an earlier attempt do
  nothing.
* An epoch that is lower than the highest one seen of its client begins nothing.
* What is *past*, because the client has acknowledged it or a later epoch has begun, begins nothing
  either. But another task may have staged it, and `take_over` tells that task what to decide: the
  client of a step that has failed, or has ended itself, did not wait for all decisions.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from jflow.base.values import Array
from jflow.errors import AbortedError, OpError, ResourceExhaustedError
from jflow.state.effects.effect import Effect, EffectKey
from jflow.state.effects.outcome import Earlier, Phase, SupersededError
from jflow.state.effects.results import total_bytes

MAX_UNACKNOWLEDGED = 1 << 18
"""The largest number of unacknowledged steps of one client."""

MAX_CLIENTS = 4096
"""The largest number of remembered clients; the longest idle ones of the user that has most are
forgotten first."""

MAX_RESULT_BYTES = 1 << 26
"""The largest size of all results that a task keeps; the oldest are dropped first."""

MAX_PAST = 1 << 16
"""How many applied steps on several tasks a task remembers after they were acknowledged. One that
another task has staged is decided within about a minute."""

_Window = tuple[str, int]
"""A client and its epoch."""

_OF_USER = "@"
"""How the names of the clients of users begin: "@ann/run" is one of ann."""

_OPEN = (Phase.RUNNING, Phase.STAGED, Phase.APPLYING)
"""The phases of an attempt that is active."""


@dataclass(slots=True, eq=False)
class LedgerEntry:
    """A task's record of one step.

    Attributes:
      fence: the lowest attempt that may begin.
      attempt, phase, participants, results, error: of its latest attempt, as in `Earlier`.
    """

    fence: int = 0
    attempt: int = 0
    phase: Phase = Phase.UNKNOWN
    participants: tuple[str, ...] = ()
    results: tuple[Array, ...] | None = None
    error: OpError | None = None

    @property
    def is_open(self) -> bool:
        """Whether an attempt is active."""
        return self.phase in _OPEN

    def is_at(self, phase: Phase, effect: Effect) -> bool:
        """Whether the latest attempt is this one and is in this phase."""
        return self.phase is phase and self.attempt == effect.attempt


@dataclass(slots=True)
class LedgerWindow:
    """A task's records of the unacknowledged steps of one epoch of a client.

    Attributes:
      acknowledged: steps with lower sequences are acknowledged.
      is_saved: as for `Effect`.
      entries: by sequence.
    """

    acknowledged: int = 0
    is_saved: bool = True
    entries: dict[int, LedgerEntry] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        """Whether an attempt of a step is active."""
        return any(entry.is_open for entry in self.entries.values())


class Ledger:
    """A task's records of the steps that are applied once. Its caller holds a lock.

    Args:
      max_clients, max_results: as `MAX_CLIENTS` and `MAX_RESULT_BYTES`.
    """

    def __init__(self, max_clients: int = MAX_CLIENTS, max_results: int = MAX_RESULT_BYTES) -> None:
        self._max_clients = max_clients
        self._max_results = max_results
        self._epochs: dict[str, int] = {}
        self._windows: OrderedDict[_Window, LedgerWindow] = OrderedDict()
        # The attempts of acknowledged steps that were applied here and on other tasks.
        self._past: OrderedDict[EffectKey, int] = OrderedDict()
        # The entries that have results, the oldest first, and their size.
        self._sizes: OrderedDict[LedgerEntry, int] = OrderedDict()
        self._n_bytes = 0

    # Attempts ---------------------------------------------------------------------------------

    def begin_attempt(self, effect: Effect, participants: Sequence[str] = ()) -> None:
        """Records that an attempt begins to run.

        Args:
          effect: the attempt.
          participants: the names of the tasks that it writes on.

        Raises:
          SupersededError: if a later attempt has taken over, or the step is applied already.
          AbortedError: if a later epoch of the client is known.
          ResourceExhaustedError: if too many steps of the client are not acknowledged.
        """
        entry = self._entry(effect)
        if entry.phase is not Phase.UNKNOWN:
            phase_text = "is applied" if entry.phase is Phase.COMMITTED else "has begun"
            raise SupersededError(
                f"{effect} cannot begin: attempt {entry.attempt} {phase_text} on this task"
            )
        entry.fence = entry.attempt = effect.attempt
        entry.phase, entry.participants = Phase.RUNNING, tuple(participants)

    def stage(self, effect: Effect) -> None:
        """Records that an attempt has run and now waits for `commit` or `abort`.

        Raises:
          SupersededError: if a later attempt has taken over; it is aborted then.
          AbortedError: if a later epoch of the client is known, or the attempt was given up.
        """
        self._active_entry(effect, Phase.RUNNING, "be staged").phase = Phase.STAGED

    def apply(self, effect: Effect) -> None:
        """Records that an attempt is being applied without a commit. Raises as `stage`.

        `finish` or `revert` has to follow.
        """
        self._active_entry(effect, Phase.RUNNING, "be applied").phase = Phase.APPLYING

    def revert(self, effect: Effect) -> None:
        """Undoes `apply`, because nothing was written."""
        entry = self._find(effect)
        if entry is not None and entry.is_at(Phase.APPLYING, effect):
            entry.phase = Phase.RUNNING

    def finish(
        self,
        effect: Effect,
        results: tuple[Array, ...] | None,
        error: OpError | None = None,
    ) -> bool:
        """Records the end of an attempt that applies its writes itself.

        Args:
          effect: the attempt.
          results: its results; None if they are too large to be kept.
          error: what it failed with. It is forgotten then, unless it has been applied.

        Returns:
          Whether the step is applied, or a later attempt decides that.

        Raises:
          SupersededError, AbortedError: as `stage`, if it has written nothing.
        """
        entry = self._find(effect)
        if entry is not None and entry.is_at(Phase.APPLYING, effect):
            entry.error = error
        elif error is not None:
            return not self.abort(effect, effect.attempt)
        else:
            entry = self._active_entry(effect, Phase.RUNNING, "finish")
        self._commit(entry, results)
        return True

    # Decisions --------------------------------------------------------------------------------

    def commit(self, effect: Effect, by: int, results: tuple[Array, ...] | None = None) -> bool:
        """Commits a staged attempt.

        Args:
          effect: the attempt.
          by: the attempt that decides: itself, or a later one that has taken over.
          results: what a repeat of the step is answered with; None if that is not kept.

        Returns:
          Whether its writes have to be applied now; False if they have been.

        Raises:
          SupersededError: if another attempt has taken over that decides.
          AbortedError: if the attempt is not staged here.
        """
        entry = self._find(effect)
        if entry is not None and entry.is_at(Phase.COMMITTED, effect):
            return False
        # First, because what has taken over may have aborted it; then the caller has to try again.
        if entry is not None and by < entry.fence:
            raise SupersededError(f"{effect} cannot be committed: attempt {entry.fence} took over")
        if entry is None or not entry.is_at(Phase.STAGED, effect):
            raise AbortedError(f"{effect} cannot be committed: this task has not staged it")
        self._commit(entry, results)
        return True

    def abort(self, effect: Effect, by: int) -> bool:
        """Aborts an attempt; returns whether it was active here.

        A decision of an attempt from which a later one has taken over does nothing to what is
        staged.
        """
        entry = self._find(effect)
        if entry is None or not entry.is_open or entry.attempt != effect.attempt:
            return False
        if entry.phase is Phase.APPLYING or (entry.phase is Phase.STAGED and by < entry.fence):
            return False
        entry.phase, entry.participants = Phase.UNKNOWN, ()
        return True

    def take_over(self, effect: Effect) -> Earlier:
        """Takes over from all earlier attempts of a step; returns what is known of the latest one.

        One that is running is given up. One that is staged is decided by `commit` or `abort` with
        the number of this attempt. One that is being applied goes on: ask again when it has ended.
        Of a step that is past, this tells what was applied; no attempt of it begins any more.

        Raises:
          SupersededError: if a later attempt has taken over, or this one is active.
          ResourceExhaustedError: if too many steps of the client are not acknowledged.
        """
        entry = self._past_entry(effect) if self._is_past(effect) else self._entry(effect)
        if effect.attempt < entry.fence:
            raise _superseded_error(effect, entry)
        if entry.is_open and entry.attempt >= effect.attempt:
            raise SupersededError(f"{effect} cannot take over: it has begun on this task")
        entry.fence = effect.attempt
        if entry.phase is Phase.RUNNING:
            entry.phase, entry.participants = Phase.UNKNOWN, ()
        return Earlier(entry.phase, entry.attempt, entry.participants, entry.results, entry.error)

    # Windows ----------------------------------------------------------------------------------

    def windows(
        self, clients: str = "", *, is_saved: bool = True
    ) -> Iterator[tuple[_Window, LedgerWindow]]:
        """Yields the windows that checkpoints keep or do not keep, by client and epoch.

        Args:
          clients: how the names of the clients begin; "" for all.
          is_saved: whether checkpoints keep them.
        """
        for key, window in self._windows.items():
            if window.is_saved == is_saved and key[0].startswith(clients):
                yield key, window

    def restore(self, windows: Sequence[tuple[_Window, LedgerWindow]], clients: str = "") -> None:
        """Replaces the windows that checkpoints keep; keeps active attempts, lowers no epoch.

        Args:
          windows: those of a checkpoint.
          clients: how the names of the clients begin whose windows are replaced; "" for all.
        """
        for key, window in [*self.windows(clients)]:
            active = {n: entry for n, entry in window.entries.items() if entry.is_open}
            for sequence in window.entries.keys() - active.keys():
                self._drop(window.entries[sequence])
            window.entries = active
            window.acknowledged = 0
            if not active:
                del self._windows[key]
        self.add([(key, window) for key, window in windows if key[0].startswith(clients)])

    def add(self, windows: Sequence[tuple[_Window, LedgerWindow]]) -> None:
        """Adds the steps of other windows, unless they are applied or active here.

        Lowers no epoch and no fence.
        """
        for key, window in windows:
            client, epoch = key
            self._epochs[client] = max(epoch, self._epochs.get(client, 0))
            if key not in self._windows:
                self._make_room()
                self._windows[key] = LedgerWindow(is_saved=window.is_saved)
            own_window = self._windows[key]
            if window.acknowledged > own_window.acknowledged:
                self._acknowledge(key, own_window, window.acknowledged)
            for sequence, entry in window.entries.items():
                own_entry = own_window.entries.get(sequence)
                is_unknown = own_entry is None or own_entry.phase is Phase.UNKNOWN
                if sequence >= own_window.acknowledged and is_unknown:
                    if own_entry is not None:
                        entry.fence = max(entry.fence, own_entry.fence)
                    own_window.entries[sequence] = entry
                    if entry.results:
                        self._keep(entry, entry.results)

    def wide_steps(self) -> Iterator[tuple[EffectKey, int, tuple[str, ...]]]:
        """Yields the steps that were applied here and on other tasks, which may still ask for them.

        Each with its attempt and, unless it is past, the tasks that it wrote on.
        """
        for key, attempt in self._past.items():
            yield key, attempt, ()
        for window_key, window in self._windows.items():
            for sequence, entry in window.entries.items():
                if entry.phase is Phase.COMMITTED and len(entry.participants) > 1:
                    yield EffectKey(*window_key, sequence), entry.attempt, entry.participants

    def add_past(self, key: EffectKey, attempt: int) -> None:
        """Adds a step that is past and was applied, for another task that may have it staged."""
        self._past.setdefault(key, attempt)
        if len(self._past) > MAX_PAST:
            self._past.popitem(last=False)

    def open_among(self, windows: Sequence[tuple[_Window, LedgerWindow]]) -> Iterator[EffectKey]:
        """Yields the steps of other windows that have an active attempt here."""
        for key, window in windows:
            own_entries = self._windows[key].entries if key in self._windows else {}
            for sequence in window.entries:
                entry = own_entries.get(sequence)
                if entry is not None and entry.is_open:
                    yield EffectKey(*key, sequence)

    def _entry(self, effect: Effect) -> LedgerEntry:
        """Returns the entry of a step, created if missing; drops what the client acknowledges.

        Raises:
          SupersededError: if a later attempt has taken over, or the step is acknowledged.
          AbortedError: if a later epoch of the client is known.
          ResourceExhaustedError: if too many steps of the client are not acknowledged.
        """
        window_key = effect.client, effect.epoch
        if effect.epoch != self._epochs.get(effect.client, 0):
            self._check_epoch(effect)
            self._epochs[effect.client] = effect.epoch
        window = self._windows.get(window_key)
        if window is None:
            self._make_room()
            window = self._windows[window_key] = LedgerWindow(is_saved=effect.is_saved)
        self._windows.move_to_end(window_key)
        if effect.acknowledged > window.acknowledged:
            self._acknowledge(window_key, window, effect.acknowledged)
        if effect.sequence < window.acknowledged:
            raise SupersededError(
                f"{effect} comes too late: the client has acknowledged all steps before "
                f"{window.acknowledged}"
            )
        entry = window.entries.get(effect.sequence)
        if entry is None:
            if len(window.entries) >= MAX_UNACKNOWLEDGED:
                raise ResourceExhaustedError(
                    f"{effect} cannot begin: the client has not acknowledged "
                    f"{len(window.entries)} steps, and more are not remembered"
                )
            entry = window.entries[effect.sequence] = LedgerEntry()
        elif effect.attempt < entry.fence:
            raise _superseded_error(effect, entry)
        return entry

    def _is_past(self, effect: Effect) -> bool:
        """Whether no attempt of a step can begin any more."""
        if effect.epoch < self._epochs.get(effect.client, 0):
            return True
        window = self._windows.get((effect.client, effect.epoch))
        return window is not None and effect.sequence < window.acknowledged

    def _past_entry(self, effect: Effect) -> LedgerEntry:
        """Returns what is known of a step that is past."""
        entry = self._find(effect)
        if entry is None:
            attempt = self._past.get(effect.key, 0)
            phase = Phase.COMMITTED if attempt else Phase.UNKNOWN
            return LedgerEntry(attempt=attempt, phase=phase)
        return entry

    def _acknowledge(self, key: _Window, window: LedgerWindow, sequence: int) -> None:
        """Drops the entries before a sequence number, except active ones."""
        entries = window.entries
        is_short = sequence - window.acknowledged <= len(entries)
        for number in range(window.acknowledged, sequence) if is_short else [*entries]:
            entry = entries.get(number)
            if number < sequence and entry is not None and entry.phase not in _OPEN:
                if entry.results:
                    self._drop(entry)
                if entry.phase is Phase.COMMITTED and len(entry.participants) > 1:
                    self.add_past(EffectKey(*key, number), entry.attempt)
                del entries[number]
        window.acknowledged = sequence

    def _make_room(self) -> None:
        """Forgets a client, if there are too many: the longest idle one of the user with most.

        So a user with many clients does not make a task forget those of others.
        """
        if len(self._windows) < self._max_clients:
            return
        n_of_user = Counter(_user_of(client) for client, _ in self._windows)
        users = sorted(n_of_user, key=n_of_user.__getitem__, reverse=True)
        for user in users:
            for key, window in self._windows.items():
                if _user_of(key[0]) == user and not window.is_open:
                    for entry in window.entries.values():
                        self._drop(entry)
                    del self._windows[key]
                    return

    def _commit(self, entry: LedgerEntry, results: tuple[Array, ...] | None) -> None:
        entry.phase, entry.results = Phase.COMMITTED, results
        if results:
            self._keep(entry, results)

    def _keep(self, entry: LedgerEntry, results: tuple[Array, ...]) -> None:
        """Adds the results of an entry to the total; drops the oldest ones if it is too large."""
        self._sizes[entry] = n_bytes = total_bytes(results)
        self._n_bytes += n_bytes
        while self._n_bytes > self._max_results:
            oldest, n_bytes = self._sizes.popitem(last=False)
            self._n_bytes -= n_bytes
            oldest.results = None

    def _drop(self, entry: LedgerEntry) -> None:
        """Subtracts the results of an entry, which is being forgotten, from the total."""
        self._n_bytes -= self._sizes.pop(entry, 0)

    def _find(self, effect: Effect) -> LedgerEntry | None:
        window = self._windows.get((effect.client, effect.epoch))
        return None if window is None else window.entries.get(effect.sequence)

    def _active_entry(self, effect: Effect, phase: Phase, what: str) -> LedgerEntry:
        """Returns the entry of an attempt that is active, in a phase, and not superseded."""
        if effect.epoch != self._epochs.get(effect.client, 0):
            self._check_epoch(effect)
        entry = self._find(effect)
        if entry is not None and effect.attempt < entry.fence:
            raise _superseded_error(effect, entry)
        if entry is None or not entry.is_at(phase, effect):
            raise AbortedError(f"{effect} cannot {what}: it was given up on this task")
        return entry

    def _check_epoch(self, effect: Effect) -> None:
        highest = self._epochs.get(effect.client, 0)
        if effect.epoch < highest:
            raise AbortedError(
                f"{effect} is of epoch {effect.epoch}, but epoch {highest} of {effect.client!r} "
                "has begun: another process has taken its place"
            )


def _superseded_error(effect: Effect, entry: LedgerEntry) -> SupersededError:
    return SupersededError(f"{effect} was superseded by attempt {entry.fence}")


def _user_of(client: str) -> str:
    return client.partition("/")[0] if client.startswith(_OF_USER) else ""
