import pytest

from jflow.base.cluster import Device, Task
from jflow.base.packing import pack
from jflow.errors import InvalidArgumentError
from jflow.plan import ResourceSpec
from jflow.state.records.allowed_directories import AllowedDirectories
from jflow.state.resources import ResourceManager
from jflow.state.resources.kinds import KINDS, make
from jflow.state.resources.reader import ReaderSpec

TASK = Task("ps", 0)
CPU = Device(TASK, "CPU", 0)
ROOTS = AllowedDirectories(())


def spec(kind, definition):
    return ResourceSpec(kind, "", "shared", "", definition)


def test_kernels_are_named_after_the_kind_of_the_resource_that_they_work_on():
    names = [kind.name for kind in KINDS]
    assert sorted(names) == sorted({*names})
    for kind in KINDS:
        assert kind.kernels
        assert {name.partition(".")[0] for name in kind.kernels} == {kind.name}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_definition_that_is_not_one_of_its_kind_is_refused(kind):
    for definition in (b"", b"\x81", b"\x90", pack({"nothing": 1}), b"{}"):
        with pytest.raises(InvalidArgumentError):
            make(spec(kind.name, definition), ROOTS)


def test_a_kind_that_is_not_registered_is_refused():
    with pytest.raises(
        InvalidArgumentError, match=r"unknown kind of resource in stack .*one of .*queue"
    ):
        make(spec("stack", pack({})), ROOTS)


def test_a_shared_reader_must_have_the_kind_and_options_that_are_expected():
    manager = ResourceManager(TASK, ROOTS)

    def get(kind, **options):
        return manager.get(CPU, spec("reader", ReaderSpec(kind, options).to_bytes()))

    reader = get("TextLineReader", skip_header_lines=1)
    assert get("TextLineReader", skip_header_lines=1) is reader
    with pytest.raises(InvalidArgumentError, match=r"different definition. Expected Id"):
        get("IdentityReader")
    with pytest.raises(InvalidArgumentError, match=r"with \{\}, found .* with \{'skip"):
        get("TextLineReader")
