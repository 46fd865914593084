"""The generated code is what the files in protos/ say."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from jflow.net.protocol.v1 import handshake_pb2, plan_pb2, service_pb2, tensor_pb2
from jflow.state.records.v1 import (
    example_pb2,
    graph_pb2,
    summary_pb2,
    tensor_bundle_pb2,
    typed_example_pb2,
)
from jflow.state.records.v1 import tensor_pb2 as tensor_proto_pb2

ROOT = Path(__file__).parents[3]
MODULES = {
    "jflow/v1/handshake": handshake_pb2,
    "jflow/v1/plan": plan_pb2,
    "jflow/v1/service": service_pb2,
    "jflow/v1/tensor": tensor_pb2,
    "jflow/records/v1/example": example_pb2,
    "jflow/records/v1/graph": graph_pb2,
    "jflow/records/v1/summary": summary_pb2,
    "jflow/records/v1/tensor": tensor_proto_pb2,
    "jflow/records/v1/tensor_bundle": tensor_bundle_pb2,
    "jflow/records/v1/typed_example": typed_example_pb2,
}

_FIELD = re.compile(r"(?:(repeated|optional) )?([\w.]+|map<\w+, \w+>) (\w+) = (\d+);")
_BLOCK = re.compile(r"(message|oneof|enum) (\w+) \{")


@pytest.mark.skipif(
    importlib.util.find_spec("grpc_tools") is None, reason="grpcio-tools is not installed"
)
def test_generating_again_gives_the_same_files():
    command = [sys.executable, str(ROOT / "tools" / "generate_protos.py"), "--check"]
    subprocess.run(command, check=True)


def _written(name):
    """Messages of a proto file, each with its fields: (label, type, oneof) by (name, number)."""
    text = (ROOT / "protos" / f"{name}.proto").read_text()
    messages, open_blocks, group = {}, [], None
    for line in re.sub(r"//.*", "", text).splitlines():
        block, field = _BLOCK.search(line), _FIELD.search(line)
        if block and block[1] == "oneof":
            group = block[2]
        elif block:
            open_blocks.append({})
            if block[1] == "message":
                messages[block[2]] = open_blocks[-1]
        elif field:
            open_blocks[-1][field[3], int(field[4])] = (field[1], field[2], group)
        elif "}" in line and group is not None:
            group = None
        elif "}" in line and open_blocks:
            open_blocks.pop()
    return messages


def _generated(module):
    file = FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(file)
    return {
        message.name: {(f.name, f.number): _described(f, message) for f in message.field}
        for message in _every(file.message_type)
    }


def _every(messages):
    """Messages and those inside of them, without the entries of maps."""
    for message in messages:
        if not message.options.map_entry:
            yield message
            yield from _every(message.nested_type)


def _described(field, message):
    nested = (one for one in message.nested_type if one.options.map_entry)
    entries = {entry.name: entry.field for entry in nested}
    entry = entries.get(field.type_name.rpartition(".")[2])
    if entry is not None:
        return None, f"map<{_type(entry[0])}, {_type(entry[1])}>", None
    if field.proto3_optional:
        return "optional", _type(field), None
    label = "repeated" if field.label == field.LABEL_REPEATED else None
    group = message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else None
    return label, _type(field), group


def _type(field):
    named = field.type_name.rpartition(".")[2]
    return named or field.Type.Name(field.type).removeprefix("TYPE_").lower()


@pytest.mark.parametrize("name", MODULES)
def test_every_message_and_field_is_the_written_one(name):
    written = _written(name)
    assert written
    assert _generated(MODULES[name]) == written


def test_every_proto_file_has_its_module():
    protos = ROOT / "protos"
    found = {p.relative_to(protos).with_suffix("").as_posix() for p in protos.rglob("*.proto")}
    assert found == set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_the_generated_code_is_of_the_old_generator(name):
    """What a newer one writes does not load on protobuf 6."""
    text = Path(MODULES[name].__file__).read_text()
    major = int(re.search(r"# Protobuf Python Version: (\d+)\.", text)[1])
    assert major == 6
