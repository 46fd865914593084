"""The records of the project, and the arguments of all functions that plans call."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from jflow.base.machine import ExecutionPlatform
from jflow.base.options import SessionDefaults
from jflow.base.packing import Record, pack, unpack_keywords
from jflow.client.export.document import Aval, Document, Equation, Member, Node, ProgramEntry
from jflow.client.run_log import records
from jflow.errors import InvalidArgumentError
from jflow.plan import CallbackAttributes
from jflow.plan.trace.record import TaskRecord
from jflow.plan.trace.samples import (
    EdgeName,
    SampledInstruction,
    SampledPlan,
    SampledStep,
    StepSamples,
)
from jflow.state.checkpoint_files.layout import (
    VERSION,
    Manifest,
    ShardRecord,
    ShardTable,
    StateEntry,
    TensorEntry,
)
from jflow.state.effects.saved import (
    MovedWindows,
    SavedEffect,
    SavedWindow,
    SavedWindows,
    WideStep,
)
from jflow.state.journal import PackedEntries, PackedEntry
from jflow.state.members import MemberList
from jflow.state.records import DECODERS
from jflow.state.records.sparse import SparsePart
from jflow.state.resources import KERNELS
from jflow.state.resources.accumulator import AccumulatorSpec
from jflow.state.resources.accumulator import snapshot as accumulator
from jflow.state.resources.iterator_state import IteratorStateSnapshot, IteratorStateSpec
from jflow.state.resources.kinds import LedgerSpec
from jflow.state.resources.lookup_table import LookupTableSnapshot, LookupTableSpec
from jflow.state.resources.moving import (
    LeftState,
    LeftStates,
    MovedState,
    SavedQueue,
    SavedStates,
    SavedVariable,
)
from jflow.state.resources.queue import QueueSpec
from jflow.state.resources.queue import snapshot as queue
from jflow.state.resources.queue.spec import FIFO, SHUFFLE
from jflow.state.resources.random_state import RandomStateSnapshot, RandomStateSpec
from jflow.state.resources.reader import ReaderSnapshot, ReaderSpec
from jflow.state.resources.value_table import ValueTableSnapshot, ValueTableSpec
from jflow.state.saves.items import SaveReport, StateItem, StateItems, StateSlice, StateSource
from jflow.task.execution.functions import host_function, host_kernel
from tests.base.test_packing import PLAIN, SPECS, TEXTS
from tests.state.watch import builds as watch

SECONDS = st.floats(0, 1e6)
NUMBERS, LONG = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
WORDS_OF_LOGS = st.lists(NUMBERS, max_size=3).map(tuple)
TEXTS_OF_LOGS = st.lists(TEXTS, max_size=3).map(tuple)
PLATFORM_FIELDS = {
    "processor": TEXTS,
    "features": TEXTS_OF_LOGS,
    "n_cores": NUMBERS,
    "jaxlib": TEXTS,
    "xla_flags": TEXTS,
}
PLATFORMS = st.builds(ExecutionPlatform, **PLATFORM_FIELDS)
ENTRY_FIELDS = {
    "step": LONG,
    "device": NUMBERS,
    "instruction": NUMBERS,
    "touched": st.lists(LONG, max_size=4).map(tuple),
    "n_values": NUMBERS,
}
WORDS = st.lists(st.integers(0, 2**32), max_size=3).map(tuple)


def _rows(*columns):
    """Tables of numbers as a task record holds them."""
    rows = st.lists(st.tuples(*columns), max_size=3)
    return rows.map(lambda found: np.array(found, "<f8").tobytes())


INDICES = st.lists(st.integers(0, 99), max_size=3).map(tuple)
PARAMETERS = st.dictionaries(TEXTS, PLAIN, max_size=2)
EQUATIONS = st.builds(Equation, TEXTS, PARAMETERS, INDICES, INDICES, st.booleans(), st.just({}))
PROGRAMS = st.builds(
    ProgramEntry, INDICES, INDICES, st.lists(EQUATIONS, max_size=2).map(tuple), INDICES
)
NODES = st.builds(
    Node,
    *(TEXTS, TEXTS, st.none() | st.integers(0, 9), PARAMETERS, INDICES, INDICES, INDICES, TEXTS),
    *(st.lists(TEXTS, max_size=2).map(tuple), st.none() | st.tuples(TEXTS, WORDS.map(len), TEXTS)),
)
TENSOR_FIELDS = {
    **dict.fromkeys(("key", "dtype"), TEXTS),
    "stored": st.sampled_from(["float32", "int32"]),
    "shape": st.just((2,)),
    "begin": st.tuples(st.integers(0, 3)),
    "full_shape": st.tuples(st.integers(5, 9)),
    "n_bytes": st.just(8),
    **dict.fromkeys(("offset", "first_sum"), st.integers(0, 2**40)),
}
TENSORS = st.builds(TensorEntry, **TENSOR_FIELDS)
STATE_FIELDS = {
    "key": TEXTS,
    "kind": TEXTS,
    "record": st.binary(max_size=9),
    "arrays": st.lists(TENSORS, max_size=2).map(tuple),
}
SAVED_STATES = st.builds(StateEntry, **STATE_FIELDS)
SHARD_FIELDS = {
    "file": st.just("0123456789abcdef.ps-0.safetensors"),
    "n_bytes": st.integers(300, 2**40),
    **dict.fromkeys(("n_head", "n_table"), st.integers(0, 99)),
    "n_sums": st.integers(0, 24).map(lambda n: 4 * n),
    "crc": st.integers(0, 2**32 - 1),
}
SHARDS = st.builds(ShardRecord, **SHARD_FIELDS)
SOURCE_FIELDS = {"key": TEXTS, "base": st.floats(0, 1, exclude_max=True)}
ITEM_FIELDS = {
    **dict.fromkeys(("key", "kind", "container", "name", "owner", "dtype"), TEXTS),
    "device": st.just("/job:ps/task:0/device:CPU:0"),
    "shape": st.just((2,)),
    "definition": st.binary(max_size=9),
    "reshapes": st.booleans(),
    "part": st.none() | st.just(StateSlice((4,), (1,))),
    "sources": st.lists(st.builds(StateSource, **SOURCE_FIELDS), max_size=2).map(tuple),
}
AVALS = st.builds(
    Aval,
    st.none() | st.lists(st.integers(0, 9) | TEXTS, max_size=3).map(tuple),
    *(TEXTS, st.booleans(), st.booleans()),
)

SAVED_EFFECT = {
    **dict.fromkeys(("sequence", "attempt"), st.integers(0, 2**63 - 1)),
    "n_results": st.integers(-1, 9),
}
SAVED_WINDOW = {
    "client": TEXTS,
    **dict.fromkeys(("epoch", "acknowledged"), st.integers(0, 2**63 - 1)),
    "effects": st.lists(st.builds(SavedEffect, **SAVED_EFFECT), max_size=2).map(tuple),
}
WIDE_STEP = {
    "client": TEXTS,
    "epoch": st.integers(0, 9),
    "sequence": st.integers(0, 9),
    "attempt": st.integers(1, 9),
    "participants": TEXTS_OF_LOGS,
}
LEFT_STATE = dict.fromkeys(("device", "kind", "container", "name"), TEXTS)
SAVED_WINDOWS = {"windows": st.lists(st.builds(SavedWindow, **SAVED_WINDOW), max_size=2).map(tuple)}

INSTRUCTION_FIELDS = {
    **dict.fromkeys(("name", "kind"), TEXTS),
    **dict.fromkeys(("inputs", "reads", "writes"), INDICES),
    "edge": st.none() | st.integers(0, 9),
}
PLAN_FIELDS = {
    "device": TEXTS,
    "instructions": st.lists(st.builds(SampledInstruction, **INSTRUCTION_FIELDS), max_size=2).map(
        tuple
    ),
    "variables": st.lists(TEXTS, max_size=2).map(tuple),
}
EDGE_FIELDS = {"number": st.integers(0, 9), **dict.fromkeys(("name", "source", "target"), TEXTS)}
STEP_FIELDS = {
    "plans": st.lists(st.builds(SampledPlan, **PLAN_FIELDS), max_size=2).map(tuple),
    "edges": st.lists(st.builds(EdgeName, **EDGE_FIELDS), max_size=2).map(tuple),
    "records": st.just(()),
}

WORDS = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=4).map(tuple)

BUILDS = {
    AccumulatorSpec: {
        "dtype": st.sampled_from(["float32", "int8", "bfloat16", "bool", "string"]),
        "shape": st.none() | st.lists(st.none() | st.integers(-1, 9), max_size=3).map(tuple),
        "reduction": st.sampled_from(["MEAN", "SUM", "MEDIAN"]),
        "is_sparse": st.booleans(),
    },
    CallbackAttributes: {
        "number": st.integers(0, 2**32 - 1),
        "results": st.lists(SPECS, max_size=3).map(tuple),
        "is_conditional": st.booleans(),
    },
    Document: {
        "kind": st.sampled_from(["graph", "function"]),
        "version": st.integers(0, 9),
        "jax": TEXTS,
        "has_64_bits": st.booleans(),
        "n_programs": st.integers(0, 9),
        "avals": st.lists(AVALS, max_size=2).map(tuple),
        "arrays": st.just(()),
        "programs": st.lists(PROGRAMS, max_size=2).map(tuple),
        "variables": st.just(()),
        "resources": st.just(()),
        "nodes": st.lists(NODES, max_size=2).map(tuple),
        "objects": st.just(()),
        "collections": st.dictionaries(
            TEXTS, st.lists(st.builds(Member, TEXTS, PLAIN), max_size=2).map(tuple), max_size=2
        ),
        "signatures": st.just(()),
    },
    IteratorStateSpec: {},
    RandomStateSpec: {"seed": st.none() | WORDS},
    SparsePart: {
        "dtype": st.sampled_from(["int64", "string"]),
        "shape": st.lists(st.integers(0, 9), max_size=2).map(tuple),
        "data": st.binary(max_size=9),
    },
    LedgerSpec: {},
    QueueSpec: {
        "kind": st.sampled_from([FIFO, SHUFFLE]),
        "capacity": st.integers(-3, 2**40),
        "capacity_bytes": st.none() | st.integers(1, 2**60),
        "components": st.lists(SPECS, min_size=2, max_size=2).map(tuple),
        "names": st.just(()) | st.lists(TEXTS, min_size=2, max_size=2, unique=True).map(tuple),
        "min_after_dequeue": st.sampled_from([0, 0, 3]),
        "seed": st.none() | st.integers(-(2**63), 2**63),
    },
    ReaderSpec: {"kind": TEXTS, "options": st.dictionaries(TEXTS, PLAIN, max_size=3)},
    SavedEffect: SAVED_EFFECT,
    SavedWindow: SAVED_WINDOW,
    SavedWindows: SAVED_WINDOWS,
    WideStep: WIDE_STEP,
    MovedWindows: {
        "saved": st.builds(SavedWindows, **SAVED_WINDOWS),
        "of_sessions": st.builds(SavedWindows, **SAVED_WINDOWS),
        "wide": st.lists(st.builds(WideStep, **WIDE_STEP), max_size=2).map(tuple),
    },
    SavedQueue: {
        "number": st.integers(0, 99),
        "record": st.binary(max_size=9),
        "n_arrays": st.integers(0, 9),
    },
    LeftState: LEFT_STATE,
    MovedState: {"name": st.builds(LeftState, **LEFT_STATE), "device": TEXTS},
    LeftStates: {
        "names": st.lists(st.builds(LeftState, **LEFT_STATE), max_size=2).map(tuple),
        "saved": st.binary(max_size=9),
        "n_parts": st.integers(1, 9),
    },
    MemberList: {
        "epoch": st.integers(0, 2**40),
        "leader": st.just("/job:ps/task:0"),
        "state_task": st.sampled_from(["/job:ps/task:0", "/job:worker/task:1"]),
        "addresses": st.integers(1, 9).map(
            lambda port: {"/job:ps/task:0": f"h:{port}", "/job:worker/task:1": "h:10"}
        ),
        "successors": st.sampled_from([{}, {"/job:ps/task:1": "/job:ps/task:0"}]),
    },
    SavedStates: {"variables": st.just(()), "queues": st.just(())},
    SavedVariable: {"number": st.integers(0, 99), "dtype": TEXTS, "shape": WORDS},
    TaskRecord: {
        "task": TEXTS,
        "devices": st.lists(TEXTS, min_size=1, max_size=3).map(tuple),
        "begun": SECONDS,
        "ended": SECONDS,
        "error": SECONDS,
        "n_dropped": st.integers(0, 2**40),
        "spans": _rows(st.just(0.0), SECONDS, st.integers(0, 3), SECONDS, SECONDS, SECONDS),
        "sent": _rows(st.integers(0, 99), SECONDS),
        "received": _rows(st.integers(0, 99), SECONDS, SECONDS, SECONDS, SECONDS),
        "accesses": _rows(
            *(st.just(0.0), st.integers(0, 9), st.integers(0, 9), st.integers(0, 99)),
            st.integers(0, 1),
        ),
    },
    SampledInstruction: INSTRUCTION_FIELDS,
    SampledPlan: PLAN_FIELDS,
    EdgeName: EDGE_FIELDS,
    SampledStep: STEP_FIELDS,
    StepSamples: {
        **dict.fromkeys(("begun", "ended"), SECONDS),
        "clock": TEXTS,
        "steps": st.lists(st.builds(SampledStep, **STEP_FIELDS), max_size=2).map(tuple),
    },
}

BUILDS |= {
    accumulator._Packed: {
        "spec": st.builds(AccumulatorSpec, **BUILDS[AccumulatorSpec]),
        "global_step": st.integers(0, 99),
        "n_dropped": st.integers(0, 99),
        "n_gradients": st.integers(0, 99),
        "shape": BUILDS[AccumulatorSpec]["shape"],
        "present": st.tuples(st.booleans(), st.booleans(), st.booleans()),
    },
    RandomStateSnapshot: {
        "spec": st.builds(RandomStateSpec, **BUILDS[RandomStateSpec]),
        "words": WORDS,
        "n_drawn": st.integers(0, 99),
    },
    IteratorStateSnapshot: {
        "spec": st.just(IteratorStateSpec()),
        "text": st.none() | st.binary(max_size=9),
    },
    Manifest: {
        "version": st.just(VERSION),
        "save": TEXTS,
        "about": st.dictionaries(TEXTS, TEXTS, max_size=2),
        "shards": st.lists(SHARDS, max_size=2).map(tuple),
    },
    queue._Packed: {
        "spec": st.builds(QueueSpec, **BUILDS[QueueSpec]),
        "n_arrays": st.lists(st.integers(-1, 9), max_size=3).map(tuple),
        "is_closed": st.booleans(),
        "rng": st.none(),
    },
    ReaderSnapshot: {
        "spec": st.builds(ReaderSpec, **BUILDS[ReaderSpec]),
        "work": st.none() | st.binary(max_size=9),
        "position": st.none() | st.integers(0, 99) | WORDS,
        "n_records": st.integers(0, 99),
        "n_work_units": st.integers(0, 99),
    },
    SessionDefaults: {
        **dict.fromkeys(
            ("operation_timeout_in_ms", "connect_timeout_in_ms"), st.integers(0, 2**40)
        ),
        **dict.fromkeys(
            ("allow_soft_placement", "log_device_placement", "isolate_session_state"),
            st.booleans(),
        ),
        "placement": TEXTS,
        "device_filters": st.lists(TEXTS, max_size=2).map(tuple),
    },
    SaveReport: {"n_bytes": st.integers(0, 2**40), "held_s": SECONDS, "total_s": SECONDS},
    ShardRecord: SHARD_FIELDS,
    ShardTable: {
        "block_bytes": st.integers(1, 1 << 30),
        "entries": st.lists(TENSORS, max_size=2).map(tuple),
        "states": st.lists(SAVED_STATES, max_size=2).map(tuple),
    },
    ExecutionPlatform: PLATFORM_FIELDS,
    PackedEntries: {
        "devices": TEXTS_OF_LOGS,
        "entries": st.lists(st.builds(PackedEntry, **ENTRY_FIELDS), max_size=2).map(tuple),
    },
    PackedEntry: ENTRY_FIELDS,
    records.LogCall: {"run": LONG, "function": NUMBERS, "results": WORDS_OF_LOGS},
    records.LogEnd: {"reason": TEXTS, "unread": TEXTS_OF_LOGS},
    records.LogHeader: {
        "version": NUMBERS,
        "jflow": TEXTS,
        "platform": PLATFORMS,
    },
    records.LogJournal: {
        "task": TEXTS,
        "incarnation": LONG,
        "first": LONG,
        "packed": st.binary(max_size=9),
        "values": WORDS_OF_LOGS,
        "platform": PLATFORMS,
    },
    records.LogResults: {"run": LONG, "checksums": WORDS_OF_LOGS, "values": WORDS_OF_LOGS},
    records.LogRun: {
        "id": LONG,
        "step": NUMBERS,
        "feeds": WORDS_OF_LOGS,
        "time": SECONDS,
        "attempt": NUMBERS,
    },
    records.LogStep: {
        "plans": st.lists(st.binary(max_size=9), max_size=2).map(tuple),
        "artifacts": st.dictionaries(TEXTS, NUMBERS, max_size=2),
        "title": TEXTS,
    },
    records.LogValue: {
        "dtype": TEXTS,
        "shape": WORDS_OF_LOGS,
        "n_bytes": LONG,
        "checksum": NUMBERS,
        "offset": LONG,
        "data": st.none() | st.binary(max_size=9),
    },
    StateEntry: STATE_FIELDS,
    StateItem: ITEM_FIELDS,
    StateItems: {"items": st.lists(st.builds(StateItem, **ITEM_FIELDS), max_size=2).map(tuple)},
    StateSource: SOURCE_FIELDS,
    StateSlice: {"full_shape": INDICES, "offset": INDICES},
    TensorEntry: TENSOR_FIELDS,
    LookupTableSnapshot: {"spec": st.just(LookupTableSpec("string", "int64"))},
    LookupTableSpec: {
        "key_dtype": st.sampled_from(["string", "int64", "float32"]),
        "value_dtype": st.sampled_from(["string", "int64", "bfloat16", "text"]),
    },
    ValueTableSnapshot: {"spec": st.just(ValueTableSpec())},
    ValueTableSpec: {},
} | watch.BUILDS


def _made(kind, data):
    try:
        return kind(**{name: data.draw(values, name) for name, values in BUILDS[kind].items()})
    except InvalidArgumentError:
        assume(False)


def test_every_record_is_in_this_test():
    def below(kind):
        return {kind}.union(*map(below, kind.__subclasses__()))

    found = {kind for kind in below(Record) if kind.__module__.startswith("jflow.")}
    assert {kind for kind in found if not kind.__subclasses__()} == set(BUILDS)


@pytest.mark.parametrize("kind", BUILDS, ids=lambda kind: kind.__name__)
@given(st.data())
def test_a_record_comes_back_as_it_was(kind, data):
    record = _made(kind, data)
    assert kind.from_bytes(record.to_bytes()) == record


@pytest.mark.parametrize("kind", BUILDS, ids=lambda kind: kind.__name__)
@given(st.data())
def test_a_damaged_record_is_refused_or_is_another_one(kind, data):
    encoded = bytearray(_made(kind, data).to_bytes())
    encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    del encoded[data.draw(st.integers(0, len(encoded))) :]
    with suppress(InvalidArgumentError):
        assert isinstance(kind.from_bytes(bytes(encoded)), kind)


FUNCTIONS = [
    *(*DECODERS, *KERNELS),
    *("identity", "check_indices", "check_nans", "cast", "ensure_shape", "ensure_shape_like"),
    *("count_up_to", "check_rows", "take_row", "keep_rows"),
]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_arguments_of_every_function_have_types(name):
    function = host_function(name) or host_kernel(name)
    with pytest.raises(InvalidArgumentError, match=f"malformed arguments of '{name}'"):
        unpack_keywords(b"\xc1", function, name)
    if name != "queue.selected":
        with pytest.raises(InvalidArgumentError, match="`nonsense`"):
            unpack_keywords(pack({"nonsense": 1}), function, name)
