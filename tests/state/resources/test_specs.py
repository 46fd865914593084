import msgspec
import pytest

from jflow.base.values import TensorSpec
from jflow.errors import InvalidArgumentError
from jflow.state.resources.accumulator import AccumulatorSpec
from jflow.state.resources.iterator_state import IteratorStateSpec
from jflow.state.resources.lookup_table import LookupTableSpec
from jflow.state.resources.queue import QueueSpec
from jflow.state.resources.reader import ReaderSpec
from jflow.state.resources.value_table import ValueTableSpec

NUMBER = TensorSpec((None, 2), "float32")
PRIORITY = TensorSpec((), "int64")


def queue(kind="FIFOQueue", capacity=10, components=(NUMBER,), **rest):
    return QueueSpec(kind, capacity, components=components, **rest)


def accumulator(dtype="float32", shape=(None, 2), reduction="MEAN", is_sparse=False):
    return AccumulatorSpec(dtype, shape, reduction, is_sparse)


SPECS = [
    queue(),
    queue("RandomShuffleQueue", -1, min_after_dequeue=3, seed=-5, capacity_bytes=2**40),
    queue("PaddingFIFOQueue", 0, (NUMBER, TensorSpec((), "string")), names=("a", "b")),
    queue("PriorityQueue", components=(PRIORITY, TensorSpec(None, "bfloat16"))),
    accumulator(),
    accumulator("complex64", None, "SUM", is_sparse=True),
]


@pytest.mark.parametrize(
    "spec",
    [
        *SPECS,
        ReaderSpec("TextLineReader", {"skip_header_lines": 1}),
        IteratorStateSpec(),
        LookupTableSpec("int64", "string"),
        ValueTableSpec(),
    ],
)
def test_a_spec_comes_back_from_its_bytes(spec):
    assert type(spec).from_bytes(spec.to_bytes()) == spec


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "Queue"}, "expected one of FIFOQueue, .*PriorityQueue, got 'Queue'"),
        ({"components": ()}, "a FIFOQueue needs at least one component"),
        ({"names": ("a", "b")}, r"expected 1 different names.*got \['a', 'b'\]"),
        ({"components": (NUMBER, NUMBER), "names": ("a", "a")}, "expected 2 different names"),
        ({"capacity_bytes": 0}, "capacity_bytes greater than 0, got 0"),
        ({"min_after_dequeue": 1}, "min_after_dequeue is for a RandomShuffleQueue only, got 1"),
        ({"kind": "RandomShuffleQueue", "min_after_dequeue": -1}, "must be >= 0, got -1"),
        ({"kind": "RandomShuffleQueue", "min_after_dequeue": 10}, "< capacity, got 10 and 10"),
        (
            {"kind": "PaddingFIFOQueue", "components": (NUMBER, TensorSpec(None, "int8"))},
            "1 .*rank",
        ),
        ({"kind": "PriorityQueue"}, r"priority: expected int64\(\), got float32\(None, 2\)"),
        ({"kind": "PriorityQueue", "components": ()}, r"expected int64\(\), got none"),
    ],
)
def test_a_queue_that_cannot_be_is_refused(change, message):
    with pytest.raises(InvalidArgumentError, match=message):
        queue(**change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reduction": "MEDIAN"}, "expected one of MEAN, SUM as reduction, got 'MEDIAN'"),
        ({"dtype": "string"}, "gradients with a numeric dtype, got string"),
        ({"dtype": "bool"}, "gradients with a numeric dtype, got bool"),
        ({"dtype": "float31"}, "'float31' is not a dtype"),
        ({"shape": (-1,)}, r"sizes of 0 or more, got \(-1,\)"),
        ({"shape": (), "is_sparse": True}, "at least one dimension"),
    ],
)
def test_an_accumulator_that_cannot_be_is_refused(change, message):
    with pytest.raises(InvalidArgumentError, match=message):
        accumulator(**change)


SHUFFLE = {"kind": "RandomShuffleQueue"}


@pytest.mark.parametrize(
    ("wanted", "found", "message"),
    [
        (queue(), queue(**SHUFFLE), "kind. Expected FIFOQueue, found RandomShuffleQueue"),
        (queue(), queue(capacity=5), "capacity. Expected 10, found 5"),
        (queue(), queue(capacity_bytes=5), "capacity in bytes. Expected None, found 5"),
        (
            queue(),
            queue(components=(PRIORITY,)),
            r"component types. Expected \['float32'\], found \['int64'\]",
        ),
        (
            queue(),
            queue(components=(TensorSpec((1, 2), "float32"),)),
            r"component shapes. Expected \[\(None, 2\)\], found \[\(1, 2\)\]",
        ),
        (queue(), queue(names=("a",)), r"names. Expected \[\], found \['a'\]"),
        (
            queue(**SHUFFLE),
            queue(**SHUFFLE, min_after_dequeue=2),
            "min_after_dequeue. Expected 0, found 2",
        ),
        (queue(**SHUFFLE, seed=1), queue(**SHUFFLE, seed=2), "seed. Expected 1, found 2"),
        (
            accumulator(),
            accumulator(is_sparse=True),
            "kind. Expected conditional accumulator, found sparse conditional accumulator",
        ),
        (accumulator(), accumulator("float64"), "dtype. Expected float32, found float64"),
        (accumulator(), accumulator(shape=None), r"shape. Expected \(None, 2\), found any shape"),
        (accumulator(), accumulator(reduction="SUM"), "reduction. Expected MEAN, found SUM"),
    ],
)
def test_what_is_found_under_a_name_must_be_what_was_expected(wanted, found, message):
    with pytest.raises(InvalidArgumentError, match=f"Shared .* 'shared' has another {message}"):
        wanted.check_same(found, "shared")
    wanted.check_same(wanted, "shared")


def test_all_unbounded_queues_are_the_same():
    queue(capacity=-1).check_same(queue(capacity=-7), "shared")


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize(
    "junk", [None, [], "x", 1.5, True, {}, {"dtype": 1}, [{"dtype": 1}], [1.5]]
)
def test_a_malformed_record_is_refused(spec, junk):
    record = msgspec.msgpack.decode(spec.to_bytes())

    def read(changed):
        return type(spec).from_bytes(msgspec.msgpack.encode(changed))

    assert read(record) == spec
    with pytest.raises(InvalidArgumentError):
        read(junk)
    with pytest.raises(InvalidArgumentError):
        read(record | {"more": 1})
    for key in record:
        with pytest.raises(InvalidArgumentError):
            read({k: value for k, value in record.items() if k != key})
        may_be = {
            "shape": (None, []),
            "names": ([],),
            "seed": (None,),
            "capacity_bytes": (None,),
        }
        if key == "is_sparse" and junk is True:
            continue
        if junk not in may_be.get(key, ()):
            with pytest.raises(InvalidArgumentError):
                read(record | {key: junk})


@pytest.mark.parametrize(
    "component",
    [None, {}, {"dtype": "float32"}, {"shape": 3, "dtype": "float32"}, {"shape": [], "dtype": 3}]
    + [{"dtype": "float32", "shape": []}]
    + [{"shape": [size], "dtype": "float32"} for size in (-1, 1.0, True, "1", [])]
    + [{"shape": [], "dtype": name} for name in ("object", "str", "float31", "", "U8", "V4")],
)
def test_a_malformed_component_is_refused(component):
    record = msgspec.msgpack.decode(queue().to_bytes()) | {"components": [component]}
    with pytest.raises(InvalidArgumentError):
        QueueSpec.from_bytes(msgspec.msgpack.encode(record))
