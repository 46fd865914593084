"""The day: what the operator does and the users suffer, and what has to be true of it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from jflow.base.versions import OLDEST_VERSION
from jflow.testing import wait_until
from tests.gameday.people import Person, make_token
from tests.gameday.programs import cyd
from tests.gameday.site import OLD_WORKER, LeftOver, Site, accounts, run_cli, text
from tests.upgrade.releases import ROOT, code_of

PS_0, PS_1, PS_2 = ("ps", 0), ("ps", 1), ("ps", 2)
WORKER_0, LOOPING = ("worker", 0), ("worker", 3)
MACHINE = [("worker", 1), ("worker", 2)]
"""The tasks of the machine that is lost."""

N_CLOSURES = 40
"""Closures of a round of Bob."""

LATER = 2
"""Rounds of Bob and of Cyd that have to end after each event, before the next one."""


@dataclass
class Event:
    """What happened.

    Attributes:
      what: in words.
      seconds: how long it took.
      bob_s: the longest round of Bob that ended in that time, or directly after.
      cyd_s: the longest call of Cyd, likewise.
    """

    what: str
    seconds: float = 0.0
    bob_s: float = 0.0
    cyd_s: float = 0.0


@dataclass
class Results:
    """What a day came to.

    Attributes:
      seconds: how long it took.
      events: in their order.
      bob, cyd, ann: counts; of ann also the errors, by what she did.
    """

    seconds: float = 0.0
    events: list[Event] = field(default_factory=list)
    bob: dict[str, Any] = field(default_factory=dict)
    cyd: dict[str, Any] = field(default_factory=dict)
    ann: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The record, with times of a hundredth of a second, and without the texts of errors."""
        found = asdict(self)
        found["seconds"] = round(self.seconds, 1)
        found["ann"]["errors"] = sorted(found["ann"]["errors"])
        for one in found["events"]:
            one.update({name: round(value, 2) for name, value in one.items() if name != "what"})
        return found


class Day:
    """One day on one cluster.

    Args:
      stack: ends what is started.
      folder: where everything is kept.
      told: called with each event that is over.
    """

    def __init__(self, stack: ExitStack, folder: Path, told: Callable[[Event], object]) -> None:
        self.results = Results()
        self._told = told
        self._stack = stack
        self._folder = folder
        stack.enter_context(accounts(folder))
        self.left_over = LeftOver(folder)
        self._tokens = {user: make_token(user, folder) for user in ("ann", "bob", "cyd")}
        self.site = stack.enter_context(Site(folder, code_of(OLDEST_VERSION)))
        target, other = self.site.target(WORKER_0), self.site.target(PS_0)
        self._cyd = self._start("cyd", target, other)
        self._cyd.wait_for("started")
        self._bobs = [self._start_bob()]
        self._bob.goes_on(LATER)  # while a worker is of the release before, which takes no users

    def run(self) -> None:
        """Lets everything happen, one event after the other."""
        with self._event("a worker is replaced by one of the present release"):
            self.site.replace(OLD_WORKER, ROOT)
        with self._event("ann leaks until her quota refuses it"):
            leaking = self._start("ann_leaks", self.site.target(WORKER_0))
            self._check_refusals(leaking.wait_for("both")["both"])
        with self._event("ann loops, and the worker is restarted as it is stuck"):
            self._loop()
        with self._event("a machine with two workers is lost"):
            self._bob.wait_for("in_the_middle_of", is_new=True)
            self.site.lose(MACHINE)
        with self._event("the workers of the machine are back, one at another address"):
            self.site.join(*MACHINE[0])
            self.site.restart(MACHINE[1])
        with self._event("a new worker joins"):
            joined = self.site.join("worker")
        with self._event("bob is killed, and started again"):
            self._restart_bob()
        with self._event("a parameter server is drained"):
            said = self.site.drain(PS_1, PS_2)
            assert (said["left"], said["successor"]) == (text(PS_1), text(PS_2))
        self._check_members(joined)
        self._end(leaking)

    def _start(self, program: str, *arguments: str) -> Person:
        user = program.partition("_")[0]
        return self._stack.enter_context(Person(program, self._tokens[user], *arguments))

    @property
    def _bob(self) -> Person:
        """The program of Bob that runs now."""
        return self._bobs[-1]

    def _start_bob(self) -> Person:
        settings = {
            "cluster": self.site.spec,
            "checkpoint": str(self._folder / "bob" / "model"),
            "n_closures": N_CLOSURES,
        }
        return self._start("bob", json.dumps(settings))

    @contextmanager
    def _event(self, what: str) -> Iterator[None]:
        """An event, after which the innocent go on for some rounds."""
        event, began = Event(what), time.monotonic()
        bob, lines = self._bob, {one: len(one.hear()) for one in (self._bob, self._cyd)}
        yield
        event.seconds = time.monotonic() - began
        for one in (self._bob, self._cyd):
            one.goes_on(LATER)
        event.bob_s = self._bob.longest(lines[bob] if self._bob is bob else 0)
        event.cyd_s = self._cyd.longest(lines[self._cyd])
        self.results.events.append(event)
        self._told(event)
        self.left_over.look()

    def _check_refusals(self, errors: dict[str, str]) -> None:
        """Ann is named by the refusals."""
        for what, error in errors.items():
            assert "exceed the quota of user ann" in error, f"{what}: {error}"
        self.results.ann["errors"] = errors

    def _loop(self) -> None:
        """Ann's program is named while it runs; its worker ends, and is started again."""
        looping = self._start("ann_loops", self.site.target(PS_0), text(LOOPING))
        looping.wait_for("given_up")

        def is_named() -> bool:
            steps = self.site.items("steps")
            return any(one.user == "ann" and one.abandoned_s is not None for one in steps)

        wait_until(is_named, "the abandoned step to be listed with its user")
        self.site.restart_stuck(LOOPING)
        looping.process.wait()
        refused = looping.find("refused")
        assert refused is not None, looping.told
        self.results.ann["errors"]["stuck"] = refused["refused"]
        (reason,) = re.findall(r"event=server_stuck .*", self.site.log(LOOPING))
        assert "user ann" in reason, reason

    def _restart_bob(self) -> None:
        self._bob.wait_for("in_the_middle_of", is_new=True)
        self._bob.process.kill()
        last = self._bob.n_rounds
        self._bobs.append(self._start_bob())
        started = self._bob.wait_for("started")
        n_saved = started["started"]
        # The last save may have ended before the program could tell.
        assert n_saved - last in (0, 1), f"bob goes on at {started}, and had done {last} rounds"
        check_bob(started["values"], n_saved)

    def _check_members(self, joined: tuple[str, int]) -> None:
        """All tasks are up but the one that has left."""
        names = {name for name in [*self.site.names, joined] if name != PS_1}
        assert self.site.states() == {text(name): "up" for name in names}

    def _end(self, leaking: Person) -> None:
        """The programs end, and nothing of them runs on; then the cluster does."""
        self._end_bob()
        done = self._cyd.end("ended")
        wanted = cyd.expected(done["ended"])
        assert done["results"] == wanted, f"cyd has {done['results']}, not {wanted}"
        self.results.cyd |= {"n_rounds": done["ended"], **done["results"]}
        self.results.ann |= leaking.end("refused")
        wait_until(lambda: not self.site.items("steps"), "all steps to end")
        wait_until(lambda: not self.site.items("sessions"), "all sessions to end")
        assert any(one.user == "ann" for one in self.site.items("usage"))
        run_cli("reset", self.site.target(PS_0), "ann/leak")
        charged = [one for one in self.site.items("usage") if one.user == "ann"]
        assert not any(one.n_bytes for one in charged), charged
        self.site.stop()

    def _end_bob(self) -> None:
        done = self._bob.end("ended")
        check_bob(done["values"], done["ended"])
        rounds = [[told for told in one.told if "rounds" in told] for one in self._bobs]
        self.results.bob |= {
            "n_rounds": done["ended"],
            "n_closures": done["ended"] * N_CLOSURES,
            "n_rerun": sum(of_one[-1]["n_rerun"] for of_one in rounds),
            "values": done["values"],
        }


def check_bob(values: list[int], n_rounds: int) -> None:
    """All closures of some rounds are counted, each once."""
    n = n_rounds * N_CLOSURES
    *counts, total = values
    assert counts == [n] * len(counts), f"bob counts {counts} of {n} closures"
    assert total == n * (n - 1) // 2, f"bob has the total {total} of {n} closures"


def run(folder: Path, told: Callable[[Event], object] = lambda event: None) -> Results:
    """Runs a day.

    Args:
      folder: where everything is kept; what users save, too.
      told: called with each event that is over.

    Raises:
      AssertionError: if anything was lost, doubled, disturbed or left over.
    """
    began = time.monotonic()
    (folder / "bob").mkdir()
    with ExitStack() as stack:
        day = Day(stack, folder, told)
        day.run()
    day.left_over.check()
    day.results.seconds = time.monotonic() - began
    return day.results
