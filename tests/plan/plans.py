"""Plans for tests: a strategy for well-formed ones, and senseless ones with what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from jflow.base.cluster import Device, Task
from jflow.base.values import NUMBERS as DTYPES
from jflow.plan import (
    MAX_SLOTS,
    NAN_CHECK,
    Call,
    Carry,
    EqualSizes,
    Feed,
    Fetch,
    InputSize,
    Instruction,
    Loop,
    Plan,
    Program,
    Recv,
    ResourceSpec,
    Run,
    Send,
    VariableKey,
    VariableSpec,
)

NUMBERS = st.integers(0, 2**32 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NAMES = TEXTS.filter(bool)
DEVICES = st.builds(
    Device,
    st.builds(Task, st.from_regex(r"[A-Za-z][A-Za-z0-9_\-]{0,6}", fullmatch=True), NUMBERS),
    st.sampled_from(["CPU", "GPU", "TPU", "XLA_CPU"]),
    NUMBERS,
)
VARIABLES = st.builds(
    VariableSpec,
    st.builds(VariableKey, TEXTS, TEXTS),
    st.sampled_from(sorted(DTYPES)),
    st.lists(st.integers(0, 2**64 - 1), max_size=4).map(tuple),
)
RESOURCES = st.builds(ResourceSpec, NAMES, TEXTS, TEXTS, TEXTS, st.binary(max_size=12))
DIGESTS = st.lists(st.text("0123456789abcdef", min_size=1, max_size=8), max_size=3).map(tuple)


def _sizes(n_inputs: int) -> st.SearchStrategy[tuple[EqualSizes, ...]]:
    one = st.builds(InputSize, st.integers(0, n_inputs - 1), st.integers(0, 255), TEXTS)
    each = st.builds(EqualSizes, TEXTS, one, one | st.integers(0, 2**64 - 1))
    return st.lists(each, max_size=2).map(tuple)


class _Drawing:
    """A plan in the making: which slots are filled, and the edges in use."""

    def __init__(self, draw: st.DrawFn, n_variables: int, n_resources: int) -> None:
        self.draw = draw
        self.n_variables = n_variables
        self.n_resources = n_resources
        self.filled: list[int] = []
        self.n_slots = 0
        self.n_edges = 0

    def slots(self) -> tuple[int, ...]:
        """Some slots that are filled."""
        if not self.filled:
            return ()
        return tuple(self.draw(st.lists(st.sampled_from(self.filled), max_size=3)))

    def new(self) -> int:
        """A slot that nothing else fills."""
        self.filled.append(self.n_slots)
        self.n_slots += 1
        return self.filled[-1]

    def news(self) -> tuple[int, ...]:
        return tuple(self.new() for _ in range(self.draw(st.integers(0, 2))))

    def subset(self, n: int) -> tuple[int, ...]:
        if not n:
            return ()
        return tuple(self.draw(st.lists(st.integers(0, n - 1), max_size=3, unique=True)))

    def instruction(self, kind: str) -> Instruction:
        draw = self.draw
        match kind:
            case "feed":
                return Feed(draw(NUMBERS), self.new())
            case "send" | "recv":
                self.n_edges += 1
                device = draw(DEVICES.map(lambda device: replace(device, type="TPU")))
                is_signal = draw(st.booleans()) or (kind == "send" and not self.filled)
                if kind == "recv":
                    return Recv(self.n_edges, device, None if is_signal else self.new())
                return Send(self.n_edges, device, None if is_signal else draw(self.one()))
            case "call":
                inputs, resources = self.slots(), self.subset(self.n_resources)
                call = Call(draw(NAMES), inputs, self.news(), draw(DIGESTS), resources)
                variables = () if resources else self.subset(self.n_variables)
                return replace(call, op=draw(TEXTS), variables=variables)
        return self.run()

    def one(self) -> st.SearchStrategy[int]:
        return st.sampled_from(self.filled)

    def run(self) -> Run:
        draw = self.draw
        before = tuple((v, self.new()) for v in self.subset(self.n_variables))
        inputs = self.slots()
        if draw(st.booleans()):
            defaulted = self.subset(self.n_variables) if self.filled else ()
            known = [draw(self.one()) for _ in defaulted]
            defaults = [(v, self.new(), at) for v, at in zip(defaulted, known, strict=True)]
            return Run(None, inputs=inputs, before=before, defaults=tuple(defaults))
        reads, writes = self.subset(self.n_variables), self.subset(self.n_variables)
        donated = tuple(i for i, variable in enumerate(reads) if variable in writes)
        program = Program(draw(NAMES), draw(DIGESTS), donated)
        after = tuple((v, self.new()) for v in writes[:1])
        run = Run(program, reads, inputs, writes, self.news(), before, after, writes[1:])
        return replace(run, sizes=draw(_sizes(len(inputs)))) if inputs else run


KINDS = ("feed", "send", "recv", "call", "run")


@st.composite
def well_formed(draw: st.DrawFn) -> Plan:
    """Plans that the verifier takes, in sequential and in dataflow order."""
    variables = tuple(draw(st.lists(VARIABLES, max_size=3)))
    resources = tuple(draw(st.lists(RESOURCES, max_size=2)))
    drawing = _Drawing(draw, len(variables), len(resources))
    stages = []
    for _ in range(draw(st.integers(0, 3))):
        kinds = draw(st.lists(st.sampled_from(KINDS), max_size=4))
        stages.append(tuple(map(drawing.instruction, kinds)))
    if stages and drawing.filled:
        indices = draw(st.lists(NUMBERS, max_size=3, unique=True))
        stages[-1] += tuple(Fetch(draw(drawing.one()), index) for index in indices)
    # The order may name the stages before or be a chain: what comes before that is done as well.
    chain = tuple((i - 1,)[: i > 0] for i in range(len(stages)))
    every = tuple(tuple(range(i)) for i in range(len(stages)))
    after = draw(st.sampled_from([(), chain, every]))
    device = draw(DEVICES.map(lambda device: replace(device, type="CPU")))
    n_slots = drawing.n_slots + draw(st.integers(0, 3))
    return Plan(device, n_slots, variables, tuple(stages), resources, after)


HERE = Device(Task("w", 0), "CPU", 0)
THERE = Device(Task("w", 1), "CPU", 0)
X = VariableSpec(VariableKey("", "x"), "float32", ())
QUEUE = ResourceSpec("queue", "", "q", "", b"")
FED = Feed(0, 0)


def plan(*stages: Sequence[Instruction], **changes: Any) -> Plan:
    """A plan of 4 slots, one variable and one resource."""
    made = Plan(HERE, 4, (X,), tuple(map(tuple, stages)), (QUEUE,))
    return replace(made, **changes)


def _bad(instruction: Any, *before: Instruction, **changes: Any) -> Plan:
    return plan((FED, *before), (instruction,), **changes)


def _of_x(number: int) -> InputSize:
    return InputSize(number, 0, "x")


UPDATE = Run(Program("p", (), (0,)), reads=(0,), writes=(0,))
ANY: Any = None

DOUBLE = Run(Program("p", (), (0,)), inputs=(0,), outputs=(1,))
BODY = Plan(HERE, 3, (), ((Feed(0, 0),), (DOUBLE, Fetch(1, 0))), (), ((), (0,)))
LOOP = Loop(0, BODY, trips=3, window=2, stride=1, cycle=4, carries=(Carry(0, 0, 0, 1),))
"""A loop that doubles a carry in its own memory."""


def _with_body(*stages: Sequence[Instruction], **changes: Any) -> Loop:
    """The loop with another body, in which each stage comes after the one before."""
    after = tuple((number - 1,) if number else () for number in range(len(stages)))
    body = replace(BODY, stages=tuple(map(tuple, stages)), after=after)
    return replace(LOOP, body=replace(body, **changes))


def _nested(depth: int) -> Loop:
    loop = LOOP
    for number in range(1, depth):
        body = replace(BODY, stages=((Feed(0, 0),), (replace(loop, number=number), Fetch(1, 0))))
        loop = replace(LOOP, body=body)
    return loop


SENSELESS: dict[str, tuple[Plan, str]] = {
    # Numbers out of range.
    "a feed to no slot": (_bad(Feed(1, 4)), "slot 4 is out of range"),
    "a feed to a negative slot": (_bad(Feed(1, -1)), "slot -1 is out of range"),
    "a fetch of no slot": (_bad(Fetch(4, 0)), "slot 4 is out of range"),
    "a receive to no slot": (_bad(Recv(0, THERE, 4)), "slot 4 is out of range"),
    "a send of no slot": (_bad(Send(0, THERE, 4)), "slot 4 is out of range"),
    "a call that takes no slot": (_bad(Call("f", (0, 4))), "slot 4 is out of range"),
    "a call that gives no slot": (_bad(Call("f", (), (4,))), "slot 4 is out of range"),
    "a call that asks for no variable": (
        _bad(Call("f", variables=(1,))),
        "variable 1 is out of range",
    ),
    "a call on a resource that asks for a variable": (
        _bad(Call("queue.size", resources=(0,), variables=(0,))),
        "only a function without resources asks for variables",
    ),
    "a default of no variable": (
        _bad(Run(None, defaults=((1, 1, 0),))),
        "variable 1 is out of range",
    ),
    "a default of an empty slot": (
        _bad(Run(None, defaults=((0, 1, 3),))),
        "slot 3 is read before it is filled",
    ),
    "a default in a filled slot": (_bad(Run(None, defaults=((0, 0, 0),))), "slot 0 is filled"),
    "a call on no resource": (_bad(Call("f", resources=(1,))), "resource 1 is out of range"),
    "a run that takes no slot": (_bad(Run(None, inputs=(0, 4))), "slot 4 is out of range"),
    "a run that gives no slot": (_bad(Run(None, outputs=(4,))), "slot 4 is out of range"),
    "a run that holds in no slot": (_bad(Run(None, before=((0, 4),))), "slot 4 is out of range"),
    "a run that keeps in no slot": (
        _bad(replace(UPDATE, after=((0, 4),))),
        "slot 4 is out of range",
    ),
    "a run that reads no variable": (_bad(Run(None, reads=(1,))), "variable 1 is out of range"),
    "a run that writes no variable": (_bad(Run(None, writes=(0, 1))), "variable 1 is out of range"),
    "a run that holds no variable": (_bad(Run(None, before=((1, 1),))), "variable 1 is out of"),
    "a run that keeps no variable": (_bad(Run(None, after=((1, 1),))), "variable 1 is out of"),
    "a variable of a huge number": (
        _bad(Run(None, after=((2**32 - 1, 1),))),
        "variable 4294967295 is out of range",
    ),
    "a run that initializes no variable": (_bad(Run(None, initializes=(1,))), "variable 1 is out"),
    "a slot that is a truth": (_bad(Fetch(True, 0)), "slot True is out of range"),
    "an index that is a float": (_bad(Fetch(0, 0.5)), "0.5 is not the number of a value"),  # type: ignore[arg-type]
    "too many slots": (plan(n_slots=2**32 - 1), "4294967295 slots; the limit is 1048576"),
    "one slot too many": (plan(n_slots=MAX_SLOTS + 1), "slots; the limit is"),
    "fewer slots than none": (plan(n_slots=-1), "slots; the limit is"),
    # Slots and their order.
    "a fetch of an empty slot": (_bad(Fetch(3, 0)), "nothing fills slot 3"),
    "a send of an empty slot": (_bad(Send(0, THERE, 3)), "slot 3 is read before it is filled"),
    "a call that takes an empty slot": (_bad(Call("f", (3,))), "slot 3 is read before it is"),
    "a run that takes an empty slot": (_bad(Run(None, inputs=(3,))), "slot 3 is read before it"),
    "a slot read before it is filled": (
        plan((Call("f", (1,)),), (Call("g", (), (1,)),)),
        "slot 1 is read before it is filled",
    ),
    "a call that takes what it gives": (_bad(Call("f", (1,), (1,))), "slot 1 is read before"),
    "two feeds of one slot": (_bad(Feed(1, 0)), "slot 0 is filled a second time"),
    "a call that fills a fed slot": (_bad(Call("f", (), (0,))), "slot 0 is filled a second time"),
    "a call that fills a slot twice": (_bad(Call("f", (), (1, 1))), "slot 1 is filled a second"),
    "a receive to a filled slot": (_bad(Recv(0, THERE, 0)), "slot 0 is filled a second time"),
    "a run that fills a filled slot": (
        _bad(Run(Program("p"), outputs=(0,))),
        "slot 0 is filled a second time",
    ),
    "a value held in a filled slot": (_bad(Run(None, before=((0, 0),))), "slot 0 is filled a sec"),
    "a value kept in a filled slot": (_bad(replace(UPDATE, after=((0, 0),))), "slot 0 is filled"),
    "a stage before itself": (plan((), (), after=((), (1,))), "stage 1 runs after stage 1"),
    "a stage before an earlier one": (plan((), (), after=((1,), ())), "stage 0 runs after stage 1"),
    "a stage that waits for one twice": (
        plan((), (), (), after=((), (0,), (1, 0, 1))),
        "stage 2 runs after a stage that it names twice",
    ),
    "an order of other stages": (plan((), (), after=((),)), "2 stages and an order of 1"),
    "a stage that does not wait for what it reads": (
        plan((Call("f", (), (1,)),), (Call("g", (1,)),), after=((), ())),
        "slot 1 is filled in stage 0, which stage 1 does not come after",
    ),
    # What an instruction says.
    "a program that gives without code": (
        _bad(Run(None, outputs=(1,))),
        "has outputs but no program",
    ),
    "an update without code": (_bad(Run(None, writes=(0,))), "has outputs but no program"),
    "a program without a name": (_bad(Run(Program(""))), "expected digests, got ''"),
    "a constant without a name": (_bad(Run(Program("p", ("",)))), "expected digests, got ''"),
    "a constant that is a number": (_bad(Call("f", constants=(3,))), "expected digests, got 3"),  # type: ignore[arg-type]
    "a variable read twice": (_bad(Run(Program("p"), reads=(0, 0))), "a variable twice"),
    "a variable written twice": (_bad(Run(Program("p"), writes=(0, 0))), "a variable twice"),
    "a variable that is only initialized": (
        _bad(Run(Program("p"), initializes=(0,))),
        "initializes a variable that it does not write",
    ),
    "the new value of what is only read": (
        _bad(Run(Program("p"), reads=(0,), after=((0, 1),))),
        "holds the new value of a variable that it does not write",
    ),
    "an equal size of no input": (
        _bad(Run(Program("p"), inputs=(0,), sizes=(EqualSizes("f", _of_x(1), 2),))),
        "dimension 0 of 'x' is not a size of an input",
    ),
    "an equal size of no dimension": (
        _bad(Run(Program("p"), inputs=(0,), sizes=(EqualSizes("f", InputSize(0, -1, "x"), 2),))),
        "dimension -1 of 'x' is not a size of an input",
    ),
    "another equal size of no input": (
        _bad(Run(Program("p"), inputs=(0,), sizes=(EqualSizes("f", *map(_of_x, (0, 1))),))),
        "dimension 0 of 'x' is not a size of an input",
    ),
    "an equal size below 0": (
        _bad(Run(Program("p"), inputs=(0,), sizes=(EqualSizes("f", _of_x(0), -1),))),
        "-1 is not a size",
    ),
    "a variable donated twice": (
        _bad(replace(UPDATE, program=Program("p", (), (0, 0)))),
        "donates an argument twice",
    ),
    "a donated slot": (_bad(replace(UPDATE, program=Program("p", (), (1,)))), "1 is donated"),
    "a donated variable that stays": (
        _bad(Run(Program("p", (), (0,)), reads=(0,))),
        "argument 0 is donated but is neither an updated variable nor a carry that nothing",
    ),
    "a function without a name": (_bad(Call("")), "expected the name of a function, got ''"),
    "a function that is no name": (_bad(Call(len)), "expected the name of a function"),  # type: ignore[arg-type]
    "a search for NaN that gives": (_bad(Call(NAN_CHECK, (), (1,))), "has no outputs"),
    "an operation without a name": (_bad(Call("f", op=ANY)), "expected the name of an operation"),
    "no instruction at all": (_bad("run"), "'run' is not an instruction"),
    # Devices and edges.
    "a plan of no device": (plan(device="/job:w"), "not a full device name: '/job:w'"),
    "a receive from no device": (_bad(Recv(0, "/cpu:0", 1)), "'/cpu:0' is not a full device"),  # type: ignore[arg-type]
    "a send to no device": (_bad(Send(0, ANY, 0)), "None is not a full device name"),
    "a send to itself": (_bad(Send(0, HERE, 0)), "does not send to itself"),
    "a receive from itself": (_bad(Recv(0, HERE, 1)), "does not send to itself"),
    "two sends of one edge": (_bad(Send(0, THERE, 0), Send(0, THERE, 0)), "edge 0 is used twice"),
    "two receives of one edge": (
        _bad(Recv(0, THERE, 2), Recv(0, THERE, 1)),
        "edge 0 is used twice",
    ),
    "an edge of no number": (_bad(Send(-1, THERE, 0)), "-1 is not the number of an edge"),
    "a value that is fetched twice": (_bad(Fetch(0, 0), Fetch(0, 0)), "value 0 is fetched twice"),
    "a value of no number": (_bad(Fetch(0, -1)), "-1 is not the number of a value"),
    "a feed of no number": (_bad(Feed(-1, 1)), "-1 is not the number of a value"),
    # Loops.
    "a loop of no iterations": (
        _bad(replace(LOOP, trips=0)),
        "iterations of a loop is 0",
    ),
    "a loop of no window": (_bad(replace(LOOP, window=0)), "the window of a loop is 0"),
    "a loop of a large window": (_bad(replace(LOOP, window=5000)), "the window of a loop is 5000"),
    "a loop of no stride": (_bad(replace(LOOP, stride=0)), "the stride of a loop is 0"),
    "a loop whose edges repeat": (_bad(replace(LOOP, cycle=1)), "the cycle of a loop is 1"),
    "a loop of too many edges": (_bad(replace(LOOP, stride=2**31)), "the cycle of a loop is 4"),
    "a loop of too many slots": (
        _bad(
            replace(
                _with_body((Feed(0, 0),), (DOUBLE, Fetch(1, 0)), *[()] * 100),
                window=4096,
                cycle=4096,
            )
        ),
        "slots and stages in all may be under way",
    ),
    "a body that uses variables": (
        _bad(replace(LOOP, body=replace(BODY, variables=(X,)))),
        "the body of a loop names variables or resources",
    ),
    "a body that uses a variable which its plan lacks": (
        _bad(_with_body((Feed(0, 0), Run(None, before=((3, 2),))), (DOUBLE, Fetch(1, 0)))),
        "variable 3 is out of range of",
    ),
    "a body that uses a resource which its plan lacks": (
        _bad(
            _with_body(
                (Feed(0, 0), Call("queue.size", (), (2,), resources=(7,))), (DOUBLE, Fetch(1, 0))
            )
        ),
        "resource 7 is out of range of",
    ),
    "a carry that is a variable": (
        _bad(_with_body((Feed(0, 0), Run(None, before=((0, 1),))), (Fetch(1, 0),)), variables=(X,)),
        "the next value of a carry is that of a variable",
    ),
    "a body one after another": (
        _bad(replace(LOOP, body=replace(BODY, after=()))),
        "the body of a loop is not in dataflow order",
    ),
    "a body of nothing": (
        _bad(replace(LOOP, body=Plan(HERE, 0, (), ()), carries=())),
        "is not in dataflow order, or has no stages",
    ),
    "a body of another device": (
        _bad(replace(LOOP, body=replace(BODY, device=THERE))),
        "the body of a loop is for /job:w/task:1",
    ),
    "a body without a value": (
        _bad(replace(LOOP, consts=((0, 1),))),
        "its feeds are [0], and the loop has values for [0, 1]",
    ),
    "a carry without a next value": (
        _bad(replace(LOOP, carries=(Carry(0, 0, 1, 1),))),
        "the values that it fetches are not the carries of the loop",
    ),
    "a carry whose next value is a fed one": (
        _bad(_with_body((Feed(0, 0), Fetch(0, 0)))),
        "the next value of a carry is a fed value",
    ),
    "a carry without a first value": (
        _bad(replace(LOOP, carries=(Carry(2, 0, 0, 1),))),
        "slot 2 is read before it is filled",
    ),
    "a predicate that nothing gives": (
        _bad(replace(LOOP, predicate=2)),
        "nothing fills slot 2, the predicate of the loop",
    ),
    "a donated carry that is used again": (
        _bad(_with_body((Feed(0, 0), Send(0, THERE, 0)), (DOUBLE, Fetch(1, 0)))),
        "a carry that nothing else uses",
    ),
    "a donated value of all iterations": (
        _bad(
            replace(
                _with_body((Feed(0, 0), Feed(1, 2)), (replace(DOUBLE, inputs=(2,)), Fetch(1, 0))),
                consts=((0, 1),),
            )
        ),
        "a carry that nothing else uses",
    ),
    "loops inside of each other without an end": (_bad(_nested(12)), "loops are more than 8 deep"),
    # Tables.
    "a variable of no dtype": (plan(variables=(replace(X, dtype="f33"),)), "unknown dtype 'f33'"),
    "a variable of a dtype": (plan(variables=(replace(X, dtype=3),)), "unknown dtype 3"),  # type: ignore[arg-type]
    "a variable of a negative size": (plan(variables=(replace(X, shape=(-1,)),)), "sizes of 0 or"),
    "a variable without a name": (plan(variables=(replace(X, key=ANY),)), "has no name"),
    "a resource of no kind": (plan(resources=(replace(QUEUE, kind=""),)), "has no kind"),
    "a resource without a name": (plan(resources=(replace(QUEUE, name=ANY),)), "has no kind"),
}
"""Plans that the verifier refuses, with what its error says."""
