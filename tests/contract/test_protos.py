"""The protos are contracts: what they promise stays promised.

`protos.golden` lists every field, enum value and RPC that was ever promised. A change that breaks
one fails here. After an additive change, record it:

    .venv/bin/python tests/contract/test_protos.py --update

which adds lines and never removes any. What is to be broken on purpose is taken out of the file by
hand, in a commit that says why.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

ROOT = Path(__file__).parents[2]
PROTO = ROOT / "proto"
GOLDEN = Path(__file__).with_name("protos.golden")
UPDATE = "run `.venv/bin/python tests/contract/test_protos.py --update` and commit protos.golden"

# DESIGN.md, "Contracts". One letter a direction: u(nary), s(tream).
PROMISED_RPCS = {
    "tau2eval.voice.v1.VoiceBotService": {"Converse": "ss"},
    "tau2eval.bridge.v1.BridgeService": {"RunScenario": "us"},
    "tau2eval.scorer.v1.ScenarioService": {"ListScenarios": "uu", "GetScenario": "uu"},
    "tau2eval.scorer.v1.RunService": {
        "CreateRun": "uu",
        "SubmitConversation": "su",
        "GetRun": "uu",
        "ListRuns": "uu",
        "WatchRun": "us",
        "FinishRun": "uu",
        "CompareRuns": "uu",
    },
    "tau2eval.gateway.v1.ChatService": {
        "ChatCompletion": "uu",
        "StreamChatCompletion": "us",
        "ListModels": "uu",
    },
    "tau2eval.gateway.v1.SpendService": {"ListDailySpend": "uu", "ListRunSpend": "uu"},
}

FieldProto = descriptor_pb2.FieldDescriptorProto


def compile_protos(folder):
    """Returns the files below `folder` as descriptors, in order of their names."""
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.proto"))
    with tempfile.TemporaryDirectory() as out:
        target = Path(out, "set")
        command = [sys.executable, "-m", "grpc_tools.protoc", "-I", str(folder)]
        done = subprocess.run(
            [*command, f"--descriptor_set_out={target}", *names],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return list(descriptor_pb2.FileDescriptorSet.FromString(target.read_bytes()).file)


def field_type(field, nested):
    """Returns a field's type as it counts on the wire and in JSON."""
    kind = FieldProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    name = field.type_name.lstrip(".") or kind
    entry = nested.get(name)
    if entry is not None and entry.options.map_entry:
        key, value = (field_type(part, nested) for part in entry.field)
        return f"map<{key}, {value}>"
    if field.label == FieldProto.LABEL_REPEATED:
        return f"repeated {name}"
    return f"optional {name}" if field.proto3_optional else name


def messages_of(file):
    """Yields full name and descriptor of each message, nested ones too."""

    def walk(prefix, messages):
        for message in messages:
            name = f"{prefix}.{message.name}"
            yield name, message
            yield from walk(name, message.nested_type)

    yield from walk(file.package, file.message_type)


def enums_of(file):
    yield from ((f"{file.package}.{enum.name}", enum) for enum in file.enum_type)
    for name, message in messages_of(file):
        yield from ((f"{name}.{enum.name}", enum) for enum in message.enum_type)


def rpcs_of(file):
    """Yields service, RPC and its directions ("us": unary request, streamed response)."""
    for service in file.service:
        for rpc in service.method:
            sides = (rpc.client_streaming, rpc.server_streaming)
            yield service, rpc, "".join("s" if streams else "u" for streams in sides)


def listing(files):
    """Returns one line for everything that a peer or a stored record relies on."""
    lines = []
    nested = {name: message for file in files for name, message in messages_of(file)}
    for file in files:
        for name, message in messages_of(file):
            if message.options.map_entry:
                continue
            lines.append(f"message {name}")
            for field in message.field:
                line = f"field {name}.{field.name} = {field.number} {field_type(field, nested)}"
                if field.HasField("oneof_index") and not field.proto3_optional:
                    line += f" in {message.oneof_decl[field.oneof_index].name}"
                lines.append(line)
        for name, enum in enums_of(file):
            lines.append(f"enum {name}")
            lines += [f"value {name}.{value.name} = {value.number}" for value in enum.value]
        for service, rpc, sides in rpcs_of(file):
            types = f"{rpc.input_type.lstrip('.')} -> {rpc.output_type.lstrip('.')}"
            lines.append(f"rpc {file.package}.{service.name}.{rpc.name} {sides} {types}")
    assert len(lines) == len(set(lines))
    return sorted(lines)


def broken(golden, current):
    """Returns the promises that the protos no longer keep."""
    return sorted(set(golden) - set(current))


@pytest.fixture(scope="module")
def files():
    return compile_protos(PROTO)


def test_the_promises_are_kept(files):
    gone = broken(GOLDEN.read_text().splitlines(), listing(files))
    assert gone == [], (
        "an incompatible change: renamed, renumbered, retyped or removed. Add a new field "
        "instead; see this file's docstring if it is meant"
    )


def test_every_addition_is_recorded(files):
    added = sorted(set(listing(files)) - set(GOLDEN.read_text().splitlines()))
    assert added == [], UPDATE


def test_the_golden_file_is_sorted_and_without_doubles():
    lines = GOLDEN.read_text().splitlines()
    assert lines == sorted(set(lines))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (r"string session_id = 1;", "string session_id = 99;"),
        (r"string session_id = 1;", "bytes session_id = 1;"),
        (r"string session_id = 1;", "string session = 1;"),
        (r"string session_id = 1;", "repeated string session_id = 1;"),
        (r"string session_id = 1;", "optional string session_id = 1;"),
        (r"string session_id = 1;", ""),
        (r"MODALITY_TEXT = 2;", "MODALITY_TEXT = 3;"),
        (r"MODALITY_TEXT = 2;", ""),
        (r"rpc Converse\(stream ", "rpc Converse("),
        (r"rpc Converse\(", "rpc Talk("),
    ],
)
def test_an_incompatible_change_is_seen(tmp_path, before, after):
    folder = tmp_path / "proto"
    shutil.copytree(PROTO, folder)
    voice = folder / "tau2eval/voice/v1/voice.proto"
    text, count = re.subn(before, after, voice.read_text(), count=1)
    assert count == 1
    voice.write_text(text)
    assert broken(GOLDEN.read_text().splitlines(), listing(compile_protos(folder)))


def test_an_additive_change_breaks_no_promise(tmp_path):
    folder = tmp_path / "proto"
    shutil.copytree(PROTO, folder)
    voice = folder / "tau2eval/voice/v1/voice.proto"
    voice.write_text(
        voice.read_text().replace("message Cue {}", "message Cue { map<string, int32> hints = 1; }")
    )
    golden, current = GOLDEN.read_text().splitlines(), listing(compile_protos(folder))
    assert broken(golden, current) == []
    assert set(current) - set(golden) == {
        "field tau2eval.voice.v1.Cue.hints = 1 map<string, int32>"
    }


@pytest.mark.parametrize("service", PROMISED_RPCS)
def test_the_services_of_the_design_exist(files, service):
    found = {
        rpc.name: sides
        for file in files
        for each, rpc, sides in rpcs_of(file)
        if f"{file.package}.{each.name}" == service
    }
    promised = PROMISED_RPCS[service]
    assert {name: found.get(name) for name in promised} == promised


def test_every_enum_starts_unspecified(files):
    enums = [(name, enum) for file in files for name, enum in enums_of(file)]
    assert enums
    for name, enum in enums:
        prefix = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", enum.name).upper()
        assert (enum.value[0].name, enum.value[0].number) == (f"{prefix}_UNSPECIFIED", 0), name
        assert all(value.name.startswith(f"{prefix}_") for value in enum.value), name


def test_folders_are_packages(files):
    for file in files:
        assert file.package == str(Path(file.name).parent).replace("/", ".")
        assert re.fullmatch(r"tau2eval\.[a-z]+\.v\d+", file.package)


def test_buf_lint_passes():
    buf = Path(sys.executable).with_name("buf")
    assert buf.is_file(), f"{buf} is missing: `make setup` installs it from requirements.lock"
    done = subprocess.run([buf, "lint", PROTO], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def update():
    """Adds what is new to the golden file; returns an exit code."""
    golden = GOLDEN.read_text().splitlines() if GOLDEN.exists() else []
    current = listing(compile_protos(PROTO))
    if gone := broken(golden, current):
        print("not updated, these promises are broken:", *gone, sep="\n  ", file=sys.stderr)
        return 1
    GOLDEN.write_text("".join(f"{line}\n" for line in current))
    print(f"{GOLDEN.name}: {len(current)} lines, {len(current) - len(golden)} new")
    return 0


if __name__ == "__main__":
    if sys.argv[1:] != ["--update"]:
        sys.exit(f"usage: {sys.argv[0]} --update")
    sys.exit(update())
