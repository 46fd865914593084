"""The directory of what has moved and what is held, against a model."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from jflow.errors import AbortedError
from jflow.state.moves import Directory, MovedError, StateId, Use

A, B, C = (f"/job:worker/task:{i}/device:CPU:0" for i in range(3))
DEVICES = (A, B, C)


def variable(name: str, device: str = A) -> StateId:
    return StateId(device, "variable", "", name)


def test_what_has_moved_is_named_to_steps_that_use_it_and_to_those_that_are_registered() -> None:
    directory = Directory()
    use = directory.add(frozenset({variable("v"), variable("w")}))
    directory.hold("h", [variable("v")], B)
    assert not directory.enter(use)
    assert directory.obstacle(use) == f"for {variable('v')}, which is being moved to {B}"
    directory.move("h")
    with pytest.raises(MovedError) as caught:
        directory.enter(use)
    assert caught.value.moved == {variable("v"): B}
    with pytest.raises(MovedError, match="register the step again"):
        directory.add(frozenset({variable("v")}))
    assert directory.enter(directory.add(frozenset({variable("v", B), variable("w")})))


def changing(directory: Directory, *changes: set[StateId], session: object = None) -> Use:
    """A step that changes state, by the instructions that do."""
    states = frozenset[StateId]().union(*changes)
    return directory.add(states, [*map(frozenset, changes)], session)


def test_a_pause_holds_back_steps_that_change_the_state_and_no_others() -> None:
    directory = Directory()
    v, w = variable("v"), variable("w")
    changes, reads, other = changing(directory, {v}), directory.add(frozenset({v})), {w}
    directory.pause("p", [v])
    assert not directory.enter(changes)
    assert directory.obstacle(changes) == f"for {v}, which is being saved or restored"
    assert directory.enter(reads)
    assert not directory.obstacle(reads)
    assert directory.enter(changing(directory, other))
    directory.pause("q", [v], is_exclusive=True)
    assert not directory.enter(directory.add(frozenset({v})))
    directory.resume("q")
    directory.resume("p")
    directory.resume("p")
    assert directory.enter(changes)


def test_a_pause_of_one_session_holds_back_only_its_steps() -> None:
    directory = Directory()
    v, own, other = variable("v"), object(), object()
    directory.pause("p", [v], session=own)
    assert not directory.enter(changing(directory, {v}, session=own))
    assert directory.enter(changing(directory, {v}, session=other))


def test_a_pause_waits_only_for_what_could_be_seen_in_part() -> None:
    directory = Directory()
    v, w, there = variable("v"), variable("w"), variable("w", B)
    queue = StateId(A, "queue", "", "q")
    whole = [
        changing(directory, {v}),
        changing(directory, {v}, {w}),
        changing(directory, {v}, {variable("x", B)}),
        changing(directory, {queue}),
    ]
    split = [changing(directory, {v}, {there}), changing(directory, {queue}, {v})]
    for use in whole:
        assert directory.enter(use)
    directory.pause("p", [v, w, there, queue])
    assert directory.is_quiet("p")
    directory.resume("p")
    for use in split:
        assert directory.enter(use)
        directory.pause("p", [v, w, there, queue])
        assert not directory.is_quiet("p")
        directory.leave(use)
        assert directory.is_quiet("p")
        directory.resume("p")


def test_an_exclusive_pause_waits_for_readers_of_several_tasks() -> None:
    directory = Directory()
    both = {variable("v"), variable("v", B)}
    here, across = directory.add(frozenset({variable("v")})), directory.add(frozenset(both))
    assert directory.enter(here)
    assert directory.enter(across)
    directory.pause("p", both, is_exclusive=True)
    assert not directory.is_quiet("p")
    directory.leave(across)
    assert directory.is_quiet("p"), "what reads one task sees one moment"


def test_what_moves_is_not_paused() -> None:
    directory = Directory()
    directory.hold("h", [variable("v")], B)
    with pytest.raises(AbortedError, match="being moved"):
        directory.pause("p", [variable("v")])
    directory.move("h")
    with pytest.raises(MovedError):
        directory.pause("p", [variable("v")])


def test_a_hold_is_idle_once_the_steps_have_ended_that_use_the_state_here_or_there() -> None:
    directory = Directory()
    here = directory.add(frozenset({variable("v")}))
    there = directory.add(frozenset({variable("v", B)}))
    other = directory.add(frozenset({variable("w")}))
    assert all(map(directory.enter, (here, there, other)))
    directory.hold("h", [variable("v")], B)
    assert not directory.is_idle("h")
    directory.leave(here)
    assert not directory.is_idle("h")
    directory.leave(there)
    assert directory.is_idle("h")


def test_state_that_comes_back_is_where_steps_first_found_it() -> None:
    directory = Directory()
    first = directory.add(frozenset({variable("v")}))
    for number, (source, target) in enumerate([(A, B), (B, C), (C, A)]):
        directory.hold(str(number), [variable("v", source)], target)
        directory.move(str(number))
    assert directory.enter(first)
    for device in (B, C):
        with pytest.raises(MovedError) as caught:
            directory.check({variable("v", device)})
        assert caught.value.moved == {variable("v", device): A}


def test_two_moves_cannot_hold_the_same_state() -> None:
    directory = Directory()
    directory.hold("one", [variable("v")], B)
    with pytest.raises(AbortedError, match="is being moved by another session"):
        directory.hold("two", [variable("v")], C)
    with pytest.raises(AbortedError, match="is being moved by another session"):
        directory.hold("two", [variable("v", B)], C)
    directory.release("one")
    directory.hold("two", [variable("v")], C)


def test_a_reset_breaks_holds_of_its_container_and_forgets_its_moves() -> None:
    directory = Directory()
    directory.hold("moved", [variable("v")], B)
    directory.move("moved")
    directory.hold("held", [variable("w")], B)
    directory.hold("other", [StateId(A, "queue", "mine", "q")], B)
    directory.clear([""])
    directory.check({variable("v")})
    with pytest.raises(AbortedError, match="the container was reset"):
        directory.move("held")
    directory.move("other")


def test_the_default_container_has_one_name_on_every_job() -> None:
    state = StateId("/job:ps/task:0/device:CPU:0", "variable", "worker", "v")
    assert state.on(A).container == ""
    assert state.on("/job:ps/task:1/device:CPU:0").container == "worker"


class Moves(RuleBasedStateMachine):
    """Steps and moves of two variables; the model knows where each of them is."""

    registered = Bundle("registered")
    running = Bundle("running")
    holds = Bundle("holds")

    @initialize()
    def start(self) -> None:
        self.directory = Directory()
        self.at = {"v": A, "w": A}
        self.held: dict[str, tuple[str, str]] = {}
        self.using: list[Use] = []
        self.n = 0

    @rule(target=registered, name=st.sampled_from("vw"), device=st.sampled_from(DEVICES))
    def register(self, name: str, device: str) -> Use:
        states = frozenset({variable(name, device)})
        was_there = self.ever_at(name)
        if device in was_there and device != self.at[name]:
            with pytest.raises(MovedError) as caught:
                self.directory.add(states)
            assert caught.value.moved == {variable(name, device): self.at[name]}
            return Use(frozenset())
        return self.directory.add(states)

    def ever_at(self, name: str) -> set[str]:
        return self.visited.get(name, {A})

    @property
    def visited(self) -> dict[str, set[str]]:
        return self.__dict__.setdefault("_visited", {})

    @rule(target=running, use=registered)
    def begin(self, use: Use) -> Use | None:
        names = {(state.name, state.device) for state in use.states}
        is_held = any(
            name == held and device in (self.at[name], target)
            for name, device in names
            for held, target in self.held.values()
        )
        if is_held:
            assert not self.directory.enter(use)
            return None
        if any(d in self.ever_at(n) and d != self.at[n] for n, d in names):
            with pytest.raises(MovedError):
                self.directory.enter(use)
            return None
        assert self.directory.enter(use)
        self.using.append(use)
        return use

    @rule(use=consumes(running))
    def end(self, use: Use | None) -> None:
        if use is not None:
            self.directory.leave(use)
            self.using.remove(use)

    @rule(target=holds, name=st.sampled_from("vw"), to=st.sampled_from(DEVICES))
    def hold(self, name: str, to: str) -> str | None:
        if self.at[name] == to:
            return None
        self.n += 1
        hold = str(self.n)
        states = [variable(name, self.at[name])]
        if any(held == name for held, _ in self.held.values()):
            with pytest.raises(AbortedError, match="another session"):
                self.directory.hold(hold, states, to)
            return None
        self.directory.hold(hold, states, to)
        self.held[hold] = name, to
        return hold

    @rule(hold=consumes(holds), moves=st.booleans())
    def finish(self, hold: str | None, moves: bool) -> None:
        if hold is None:
            return
        name, to = self.held[hold]
        if moves and self.directory.is_idle(hold):
            self.directory.move(hold)
            self.visited.setdefault(name, {A}).update({self.at[name], to})
            self.at[name] = to
        else:
            self.directory.release(hold)
        del self.held[hold]

    @invariant()
    def an_idle_hold_is_one_that_nothing_uses(self) -> None:
        for hold, (name, to) in self.held.items():
            devices = {self.at[name], to}
            uses = any(
                state.name == name and state.device in devices
                for use in self.using
                for state in use.states
            )
            assert self.directory.is_idle(hold) is not uses


TestMoves = Moves.TestCase
TestMoves.settings = settings(stateful_step_count=25)
