"""A world of workers for the scheduler: virtual time, one seed, faults; it checks every action."""

from __future__ import annotations

import heapq
import random
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable

from jflow.training.coordinator.events import (
    Action,
    CancelAttempt,
    Closure,
    Complete,
    Dispatch,
    Drop,
    Expire,
    FailClosure,
    FailInput,
    Keeping,
    PrepareBatch,
    Reopen,
)
from jflow.training.coordinator.scheduler import ClosureScheduler

N_CLOSURES = 20

BATCH_SIZE = 3
"""How many closures of a batch there are."""


class FailureError(Exception):
    """What a closure of the simulation raises."""


class World:
    """Workers that run closures in virtual time, die, return, join and leave, by one seed.

    Attributes:
      ends: how each closure has ended.
      applied: how often the writes of each closure were applied.
      tables: the results that each worker has, which are lost with it.
      here: the closures whose results the coordinator has.
      seen: how often things happened that a sample of worlds has to contain.
    """

    def __init__(self, seed: int, *, n_closures: int = N_CLOSURES) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.n_workers = self.rng.randint(1, 4)
        self.scheduler = ClosureScheduler(self.n_workers)
        self.closures: dict[int, Closure] = {}
        self.ends: dict[int, Action] = {}
        self.applied: Counter[int] = Counter()
        self.tables: defaultdict[int, set[int]] = defaultdict(set)
        self.here: set[int] = set()
        self.seen: Counter[str] = Counter()
        self.running: dict[int, Dispatch] = {}
        self.has_faults = True
        self._events: list[tuple[float, int, tuple[object, ...]]] = []
        self._n_events = 0
        self._up: set[int] = set()
        self._left: set[int] = set()
        self._dispatched: dict[int, Dispatch] = {}
        self._cancelled: set[int] = set()
        self._ordinals: dict[int, int] = {}
        self._fences: Counter[int] = Counter()
        self._together: dict[int, tuple[int, ...]] = {}
        self._committed: dict[int, tuple[int, ...]] = {}
        self._again: set[int] = set()
        self._former: set[int] = set()
        self._is_reporting = False
        for worker in range(self.n_workers):
            self._later(self.rng.random() * 0.1, "up", worker)
        for _ in range(n_closures):
            self._later(self.rng.random() * 3.0, "add")
        for _ in range(self.rng.randint(0, 5)):
            self._later(self.rng.random() * 3.0, "wave")
        for _ in range(self.rng.choice([0, 0, 1, 4])):
            self._later(self.rng.random() * 3.0, "chain")
        for _ in range(self.rng.randint(0, 8)):
            kinds = ["kill", "kill", "kill", "cancel", "leave", "join", "fetch"]
            self._later(self.rng.random() * 4.0, self.rng.choice(kinds))
        self._later(0.05, "tick")

    def run(self) -> None:
        """Runs until every closure has ended, without faults from a certain time on."""
        while self._events:
            self.now, _, (name, *args) = heapq.heappop(self._events)
            if self.now > 6.0:
                self.has_faults = False
            assert self.now < 500, f"closures never end: {self._unended()}"
            getattr(self, f"_{name}")(*args)
            self._check()
        assert not self._unended()
        assert self.scheduler.is_idle

    # What happens -------------------------------------------------------------------------------

    def _add(self) -> None:
        if self._is_reporting:
            self._later(0.05, "add")  # `schedule` waits while an error is reported
            return
        rng, number = self.rng, len(self.closures)
        done = [n for n, end in self.ends.items() if isinstance(end, Complete)]
        unended = [n for n in self.closures if n not in self.ends]
        pool = done + unended
        workers = self._members
        bound = rng.random() < 0.15 and workers
        is_plain = rng.random() < 0.6
        is_exactly_once = rng.random() < 0.4
        keeping = Keeping.NOT if is_exactly_once else rng.choice([*Keeping])
        closure = Closure(
            number,
            kind=(rng.choice("ab"), is_exactly_once, keeping),
            priority=0 if is_plain else rng.randint(-1, 1),
            worker=rng.choice(workers) if bound else None,
            expires=self.now + rng.random() * 3 if rng.random() < 0.05 else None,
            inputs=tuple(rng.sample(pool, min(len(pool), rng.randint(0, 2))))
            if rng.random() < 0.4
            else (),
            is_exactly_once=is_exactly_once,
            is_repeatable=keeping is Keeping.ALONE or rng.random() < 0.4,
            keeping=keeping,
        )
        self.closures[number] = closure
        self._act(self.scheduler.add(closure, self.now))

    def _wave(self) -> None:
        """Many short closures of one function are scheduled at once; some run in batches."""
        if self._is_reporting:
            self._later(0.05, "wave")
            return
        rng, workers = self.rng, self._members
        is_exactly_once = rng.random() < 0.6
        is_repeatable = is_exactly_once or rng.random() < 0.5
        wave = range(len(self.closures), len(self.closures) + rng.randint(6, 30))
        for number in wave:
            closure = self.closures[number] = Closure(
                number,
                kind=("wave", is_exactly_once, is_repeatable),
                priority=rng.randint(-1, 1) if rng.random() < 0.1 else 0,
                worker=rng.choice(workers) if workers and rng.random() < 0.05 else None,
                is_exactly_once=is_exactly_once,
                is_repeatable=is_repeatable,
                batch_size=BATCH_SIZE,
            )
            self._act(self.scheduler.add(closure, self.now))
        for _ in range(rng.choice([0, 0, 0, 1, 6])):
            self._later(rng.random() * 0.5, "cancel", rng.choice(wave))
        if rng.random() < 0.5:
            self._later(rng.random() * 0.1, "kill")

    def _chain(self) -> None:
        """Results that stay on one worker are arguments of others; then that worker is lost."""
        rng, workers = self.rng, self._members
        if self._is_reporting or not workers:
            self._later(0.05, "chain")
            return
        lost = rng.choice(workers)
        sources: list[int] = []
        for _ in range(rng.randint(4, 12)):
            number = len(self.closures)
            is_source = rng.random() < 0.6
            closure = self.closures[number] = Closure(
                number,
                kind=(rng.choice("ab"), "chain"),
                worker=rng.choice([lost, lost, None]) if is_source else None,
                inputs=tuple(rng.sample(sources, min(len(sources), rng.randint(0, 3)))),
                is_repeatable=True,
                keeping=Keeping.ALONE if is_source else rng.choice([*Keeping]),
            )
            if is_source:
                sources.append(number)
            self._act(self.scheduler.add(closure, self.now))
        then = rng.random() * 1.5
        self._later(then, rng.choice(["leave", "kill"]), lost)
        for number in rng.sample(sources, min(len(sources), rng.randint(0, 4))):
            self._later(then + rng.random() * 0.4 - min(0.1, then), "fetch", number)
            if rng.random() < 0.3:
                self._later(then + rng.random() * 0.5, "cancel", number)

    def _tick(self) -> None:
        self._act(self.scheduler.tick(self.now))
        if self.scheduler.has_error and not self._is_reporting and self.rng.random() < 0.3:
            self._is_reporting = True
            self._act(self.scheduler.cancel_all())
        if self._is_reporting and self.scheduler.is_idle:
            assert not self.running
            self.scheduler.clear()
            self._is_reporting = False
        if self._events or self._unended() or not self.scheduler.is_idle or self._is_reporting:
            self._later(0.05, "tick")

    def _up_(self, worker: int) -> None:
        if worker not in self._left and worker in self._members:
            self._up.add(worker)
            self._act(self.scheduler.worker_up(worker, self.now))

    def _kill(self, worker: int | None = None) -> None:
        if not self._up or not self.has_faults:
            return
        if worker is None:
            worker = self.rng.choice(sorted(self._up))
        if worker not in self._up:
            return
        # What it ran may have been done before it died, or be done later if it was only cut off.
        for attempt, dispatch in list(self.running.items()):
            if dispatch.worker == worker:
                fate = self.rng.random()
                if fate < 0.4:
                    self._applied(dispatch)
                elif fate < 0.7:
                    self._later(self.rng.random() * 3, "late", attempt)
                self.seen["lost batches"] += self._is_batch_once(dispatch)
                del self.running[attempt]
        self._up.discard(worker)
        self.tables.pop(worker, None)
        self._act(self.scheduler.worker_down(worker, self.now))
        self._later(self.rng.random() * 2, "up", worker)

    def _leave(self, worker: int | None = None) -> None:
        workers = self._members
        if len(workers) > 1 and self.has_faults:
            if worker is None:
                worker = self.rng.choice(workers)
            self._left.add(worker)
            self._up.discard(worker)
            self._act(self.scheduler.worker_leaves(worker, FailureError("left"), self.now))

    def _join(self) -> None:
        worker = self.n_workers
        self.n_workers += 1
        self.scheduler.add_worker(worker)
        self._later(self.rng.random(), "up", worker)

    def _fetch(self, number: int | None = None) -> None:
        """A result that a worker has is read; it arrives later, when that may have been lost."""
        if not self.closures:
            return
        if number is None:
            number = self.rng.choice(list(self.closures))
        worker = self.scheduler.locations.place(number)
        is_read = worker is not None and number in self.tables[worker]
        self._later(self.rng.choice([0.001, 0.3]), "fetched", number, is_read)

    def _fetched(self, number: int, is_read: bool) -> None:
        if not is_read:
            self._act(self.scheduler.results_lost([number], self.now))
            self._act(self.scheduler.want(number, self.now))
            return
        self.seen["copies of lost results"] += self.scheduler.locations.is_lost(number)
        if number not in self.ends or isinstance(self.ends[number], Complete):
            self.here.add(number)
        self._act(self.scheduler.result_read(number, self.now))

    def _cancel(self, number: int | None = None) -> None:
        if self.closures:
            if number is None:
                number = self.rng.choice(list(self.closures))
            self._act(self.scheduler.cancel(number, self.now))

    def _late(self, attempt: int) -> None:
        """A worker that was taken for lost does what it was doing."""
        self._applied(self._dispatched[attempt])

    def _begin(self, attempt: int) -> None:
        """An attempt takes over from earlier ones, if its worker still lives."""
        if attempt in self.running:
            self._taken_over(self._dispatched[attempt])

    def _ran(self, attempt: int) -> None:
        """An attempt ends on its worker, if that still lives."""
        dispatch = self.running.pop(attempt, None)
        if dispatch is None:
            return
        if attempt in self._cancelled and self.rng.random() < 0.7:
            self._act(self.scheduler.failed(attempt, FailureError("cancelled"), self.now))
        elif self.has_faults and self.rng.random() < (0.1 if len(dispatch.closures) > 1 else 0.02):
            self._fail(attempt, dispatch)
        elif self.has_faults and self.rng.random() < 0.03:
            self._act(self.scheduler.lost(attempt, self.now))
        elif not self._has_read(dispatch):
            lost = [number for number, _ in dispatch.places]
            self._act(self.scheduler.results_lost(lost, self.now))
            self._act(self.scheduler.lost(attempt, self.now))
        elif self._applied(dispatch):
            self.tables[dispatch.worker].update(dispatch.closures)
            dispatch_s = self.rng.choice([None, 0.0001, 0.001, 0.01])
            self._act(self.scheduler.finished(attempt, self.now, dispatch_s))
        else:
            self._act(self.scheduler.lost(attempt, self.now))

    def _fail(self, attempt: int, dispatch: Dispatch) -> None:
        """An attempt fails; in exactly-once mode it may be known that nothing was applied."""
        number, is_rolled_back = dispatch.closures[0], False
        if self.rng.random() < 0.3:
            self._applied(dispatch)  # it failed after its writes, such as by its deadline
        elif self.closures[number].is_exactly_once and self._taken_over(dispatch):
            is_rolled_back = number not in self._committed
            self.seen["rolled back batches"] += is_rolled_back and self._is_batch_once(dispatch)
        if is_rolled_back and self._ordinals[number] == dispatch.ordinal:
            for one in dispatch.closures:
                self._together.pop(one, None)
        error = FailureError()
        failed = self.scheduler.failed(attempt, error, self.now, is_rolled_back=is_rolled_back)
        self._act(failed)

    def _is_batch_once(self, dispatch: Dispatch) -> bool:
        return len(dispatch.closures) > 1 and self.closures[dispatch.closures[0]].is_exactly_once

    def _has_read(self, dispatch: Dispatch) -> bool:
        """Whether the inputs of an attempt were still where it was told, and could be reached."""
        is_cut = self.has_faults and self.rng.random() < 0.05
        return not (dispatch.places and is_cut) and all(
            number in self.tables[worker] for number, worker in dispatch.places
        )

    def _ready(self, worker: int, kind: Hashable) -> None:
        self._act(self.scheduler.batch_ready(worker, kind, self.now))

    def _applied(self, dispatch: Dispatch) -> bool:
        """Applies the writes of an attempt, as the runtime does; False if it was fenced off."""
        number = dispatch.closures[0]
        if not self.closures[number].is_exactly_once:
            self.applied.update(dispatch.closures)
            return True
        if not self._taken_over(dispatch):
            return False
        if number in self._committed:  # it is answered with what that attempt gave
            assert self._committed[number] == dispatch.closures, "results of other closures"
            return True
        self._committed[number] = dispatch.closures
        self.applied.update(dispatch.closures)
        assert max(self.applied[one] for one in dispatch.closures) == 1, "applied twice"
        return True

    def _taken_over(self, dispatch: Dispatch) -> bool:
        """Shuts out earlier attempts of an effect; False if a later one has shut out this one."""
        number = dispatch.closures[0]
        self._fences[number] = max(self._fences[number], dispatch.ordinal)
        return self._fences[number] == dispatch.ordinal

    def _later(self, delay: float, name: str, *args: object) -> None:
        self._n_events += 1
        event = (self.now + delay, self._n_events, ("up_" if name == "up" else name, *args))
        heapq.heappush(self._events, event)

    # What the scheduler wants -------------------------------------------------------------------

    def _act(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Dispatch():
                    self._check_dispatch(action)
                    self._start(action)
                case CancelAttempt(attempt):
                    self._cancelled.add(attempt)
                case PrepareBatch(worker, closure):
                    kind = self.closures[closure].kind
                    self._later(self.rng.random() * 0.03, "ready", worker, kind)
                case Complete(number) | FailClosure(number) | Expire(number) | FailInput(number):
                    self._end(number, action)
                case Drop(number):
                    self._end(number, action)
                case Reopen(number):
                    assert isinstance(self.ends.pop(number), Complete)
                    assert self.closures[number].keeping is Keeping.ALONE, "it cannot be repeated"
                    self.closures[number] = self.closures[number]._replace(
                        keeping=Keeping.NOT, expires=None
                    )
                    del self._ordinals[number]  # it is not in exactly-once mode
                    self.seen["results computed again"] += 1
                    self._again.add(number)
                    former = {a for a, d in self.running.items() if number in d.closures}
                    self._former |= former
                    self.seen["attempts of a former life"] += len(former)

    def _start(self, dispatch: Dispatch) -> None:
        closures, attempt = dispatch.closures, dispatch.attempt
        self._ordinals[closures[0]] = dispatch.ordinal
        others = [d for d in self.running.values() if d.closures == closures]
        self.seen["batches"] += len(closures) > 1
        self.seen["batches run twice"] += len(closures) > 1 and bool(others)
        self._dispatched[attempt] = self.running[attempt] = dispatch
        if self.closures[closures[0]].is_exactly_once:
            self._together.update(dict.fromkeys(closures, closures))
        name = self.closures[closures[0]].kind[0]  # type: ignore[index]
        each = {"a": 0.001, "b": 0.3, "wave": 0.01}[name]
        is_slow = self.has_faults and self.rng.random() < 0.1
        taken = each * len(closures) * (20 if is_slow else self.rng.random() * 2)
        if self.has_faults and self.rng.random() < (0.2 if len(closures) > 1 else 0.02):
            taken += 2 + 8 * self.rng.random()  # its worker is as good as stopped
        self._later(taken * self.rng.random(), "begin", attempt)
        self._later(taken, "ran", attempt)

    def _end(self, number: int, action: Action) -> None:
        assert number not in self.ends, f"{number} ends twice: {self.ends[number]}, {action}"
        self.ends[number] = action
        closure = self.closures[number]
        if isinstance(action, Complete):
            dispatch = self._dispatched[action.attempt]
            assert action.attempt not in self._former, "it was of a former life"
            assert dispatch.closures[action.position] == number
            assert self.applied[number] >= 1
            if closure.keeping is not Keeping.ALONE:
                self.here.add(number)
        if closure.is_exactly_once:
            assert self.applied[number] <= 1
        is_again = number in self._again
        self.seen["results that fail when computed again"] += is_again and not isinstance(
            action, Complete
        )

    # What must always hold ----------------------------------------------------------------------

    def _check_dispatch(self, dispatch: Dispatch) -> None:
        assert dispatch.attempt not in self._dispatched
        assert dispatch.worker in self._up, "a closure was sent to a worker that is down"
        for number in dispatch.closures:
            closure = self.closures[number]
            assert number not in self.ends
            assert closure.worker in (None, dispatch.worker)
            assert all(self._has_succeeded(n) for n in closure.inputs), "an input has failed"
            placed = {n for n, _ in dispatch.places}
            assert placed | self.here >= {*closure.inputs}, "an input is nowhere"
            others = [d for d in self._present.values() if number in d.closures]
            assert len(others) <= 1
            assert not others or closure.is_repeatable
            assert not others or others[0].worker != dispatch.worker
            assert dispatch.ordinal > self._ordinals.get(number, 0) or len(dispatch.closures) > 1
            before = self._together.get(number, dispatch.closures)
            assert before == dispatch.closures, "another attempt of an effect has other closures"
        first = self.closures[dispatch.closures[0]]
        assert not first.is_exactly_once or dispatch.ordinal > self._ordinals.get(first.number, 0)

    @property
    def _present(self) -> dict[int, Dispatch]:
        """What runs, but for attempts of closures that have ended since and run again."""
        return {a: d for a, d in self.running.items() if a not in self._former}

    def _check(self) -> None:
        self._check_closures()
        self._check_attempts()
        waiting = [n for n in self._unended() if self._is_waiting(n)]
        busy = {dispatch.worker for dispatch in self.running.values()}
        for worker in self._up - busy:
            idle = [n for n in waiting if self.closures[n].worker in (None, worker)]
            assert not idle, f"worker {worker} has nothing to do while {idle} wait"

    @property
    def _members(self) -> list[int]:
        """The workers that are not leaving."""
        workers = self.scheduler.workers.items()
        return [worker for worker, state in workers if not state.is_leaving]

    def _check_closures(self) -> None:
        """A closure that has not ended waits, is ready or runs."""
        closures, backlog = self.scheduler.closures, self.scheduler.backlog
        assert {one.closure.number for one in closures} == {*self._unended()}
        for one in closures:
            number = one.closure.number
            states = bool(one.missing), number in backlog, bool(one.attempts)
            assert sum(states) == 1, f"{number} is in none or two of three states: {states}"
            assert all(source in closures for source in one.missing)
        assert all(number in closures for number in backlog.numbers())

    def _check_attempts(self) -> None:
        """An attempt that has not come back is counted at its worker, and nothing else is."""
        attempts = {attempt.number: attempt for attempt in self.scheduler.attempts}
        assert attempts.keys() == self.running.keys()
        assert all(one.attempts <= attempts.keys() for one in self.scheduler.closures)
        for worker, state in self.scheduler.workers.items():
            own = [attempt for attempt in attempts.values() if attempt.worker == worker]
            assert state.attempts == {attempt.number for attempt in own}
            assert state.n_closures == sum(len(attempt.closures) for attempt in own)
            assert abs(state.load - sum(attempt.expected for attempt in own)) < 1e-6

    def _is_waiting(self, number: int) -> bool:
        closure = self.closures[number]
        is_away = any(number in d.closures for d in self._present.values())
        return not is_away and all(self._has_succeeded(n) for n in closure.inputs)

    def _has_succeeded(self, number: int) -> bool:
        """Whether there is a result; it may be here although to compute it again has failed."""
        return number in self.here or isinstance(self.ends.get(number), Complete)

    def _unended(self) -> list[int]:
        return [number for number in self.closures if number not in self.ends]
