"""What jflow writes, on a small file system that is full; prints what is wrong of each case.

The arguments are the directory of the file system, which is empty, one elsewhere, and the cases.
"""

from __future__ import annotations

import errno
import fcntl
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import jflow as tf
from jflow.base.machine import this_platform
from jflow.cli.main import main as main_of_command
from jflow.cli.replay import _save as save_values
from jflow.client.run_log import LogWriter, read_logs
from jflow.client.run_log.frames import decoded
from jflow.client.run_log.records import VERSION, LogCall, LogHeader, LogRun
from jflow.client.runtime.calibration_file import write_text
from jflow.client.runtime.performance import PerformanceReport
from jflow.data.iterator import FilePosition
from jflow.lab import optima
from jflow.lab.suite import results
from jflow.launch.testing.backends import in_process
from jflow.net.wire import running_ups, shared_memory
from jflow.net.wire.authority import write_certificates
from jflow.net.wire.token import load_token
from jflow.testing import wait_until
from jflow.view.picture import save_picture
from tests.full_disk.small_disk import SmallDisk

PAGE_BYTES = 4096
ROOMS = (0, PAGE_BYTES, 3 * PAGE_BYTES)
"""How many bytes are left of a full disk; less than each writer of `WRITERS` needs."""

FULL = os.strerror(errno.ENOSPC)
N_FLOATS = 20_000


def files(folder: Path) -> dict[str, bytes]:
    """The files of a folder, with what is in them."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def takes(write: Callable[[], object], error: type[Exception], name: str) -> bool:
    """Returns whether something is written; checks that the error says else why, and where."""
    try:
        write()
    except error as raised:
        if FULL not in str(raised) or name not in str(raised):
            raise AssertionError(f"expected {FULL!r} and {name!r}, got {raised!r}") from raised
        return False
    return True


def fails(write: Callable[[], object], error: type[Exception], name: str) -> None:
    """Checks that something fails for lack of room, with an error that says so and names a file."""
    assert not takes(write, error, name), "did not fail"


@dataclass(frozen=True)
class Writer:
    """Something that replaces a file, or some, and that keeps the former ones on a full disk.

    Attributes:
      write: called with the directory, and one of two numbers, by which the content differs.
      error: what it raises on a full disk.
      name: a part of the path in its message.
      rooms: how many bytes are left.
      read: the number, of what is in the directory; None if files are only compared.
    """

    write: Callable[[Path, int], object]
    error: type[Exception] = OSError
    name: str = "file"
    rooms: tuple[int, ...] = ROOMS
    read: Callable[[Path], int] | None = None


def check(writer: Writer, disk: SmallDisk, folder: Path) -> None:
    """Checks a writer."""
    writer.write(folder, 1)
    former = files(folder)
    assert former

    def is_kept() -> None:
        there = files(folder)
        assert there == former, f"{sorted(former)} has become {sorted(there)}"
        assert writer.read is None or writer.read(folder) == 1

    for room in writer.rooms:
        with disk.full(room):
            fails(partial(writer.write, folder, 2), writer.error, writer.name)
            is_kept()
    with disk.without_inodes():
        fails(partial(writer.write, folder, 2), writer.error, writer.name)
        is_kept()
    writer.write(folder, 2)
    assert files(folder) != former
    assert writer.read is None or writer.read(folder) == 2


# Files that are replaced, or made, as a whole -----------------------------------------------------


def save(folder: Path, number: int) -> None:
    """Saves a session, under one prefix."""
    with tf.Graph().as_default(), tf.Session() as session:
        v = tf.Variable(np.full(N_FLOATS, number, np.float32), name="v")
        session.run(v.initializer)
        tf.checkpoint.save(folder / "file", session)


def saved(folder: Path) -> int:
    """What `save` has saved."""
    with tf.checkpoint.open_checkpoint(folder / "file") as checkpoint:
        checkpoint.verify()
        return int(checkpoint.read("v")[-1])


def _converted(convert: Callable[[Any, Path], None], scratch: Path) -> Callable[[Path, int], None]:
    """Returns what converts the checkpoint of a number."""

    def write(folder: Path, number: int) -> None:
        save(scratch, number)
        with tf.checkpoint.open_checkpoint(scratch / "file") as checkpoint:
            convert(checkpoint, folder / f"file{number}")

    return write


def _graph(number: int) -> tf.Graph:
    """A graph with many bytes, which differ by the number."""
    graph = tf.Graph()
    with graph.as_default():
        tf.constant(np.full(N_FLOATS, number, np.float32), name=f"c{number}" * N_FLOATS)
    return graph


def _list(folder: Path, number: int) -> None:
    paths = [f"{'m' * 90}-{number}-{step}" for step in range(200)]
    tf.train.update_checkpoint_state(folder, paths[-1], paths, "file")


def _position(folder: Path, number: int) -> None:
    FilePosition(folder / "file").save(f"{number}" * N_FLOATS)


def _picture(folder: Path, number: int) -> None:
    with mock.patch("jflow.view.picture.picture", return_value=f"{number}" * N_FLOATS):
        save_picture(mock.Mock(), folder / "file.svg")


def _report(folder: Path, number: int) -> None:
    with mock.patch.object(PerformanceReport, "html", return_value=f"{number}" * N_FLOATS):
        PerformanceReport().save(folder / "file.html")


def _trace(folder: Path, number: int) -> None:
    hook = tf.train.ProfilerHook(save_steps=1, output_dir=str(folder))
    with mock.patch("jflow.training.monitored.report_hooks.ChromeTimeline") as timeline:
        timeline().generate_chrome_trace_format.return_value = f"{number}" * N_FLOATS
        hook._write(mock.Mock(), 1)


def _replayed(folder: Path, number: int) -> None:
    found = mock.Mock(variables={"v": np.full(N_FLOATS, number, np.float32)})
    save_values(found, folder / "file.npz")


def _results(folder: Path, number: int) -> None:
    origin = results.Origin(f"{number}" * N_FLOATS, "", 0, False, {})
    results.save(folder / "file.json", results.GroupResults(origin))


def _optima(folder: Path, number: int) -> None:
    case = mock.Mock(digest=f"{number}" * N_FLOATS, makespan=0, bound=0, solver="")
    with mock.patch.object(optima, "asdict", return_value={}):
        optima.write_optima(folder / "file", [case])


def _token(folder: Path, number: int) -> None:
    """Makes a token, as its first use does."""
    with mock.patch("pathlib.Path.home", return_value=folder / f"file{number}"):
        load_token({})


def _certificates(folder: Path, number: int) -> None:
    cluster = tf.train.ClusterSpec({"worker": ["localhost:1"]})
    write_certificates(folder / f"file{number}", cluster, 1)


def _announced(folder: Path, number: int) -> None:
    """Keeps what a `jflow up` says of itself, which it removes at its end."""
    with running_ups.announced(["grpc://127.0.0.1:1"], environ={"HOME": str(folder)}):
        shutil.copytree(folder, folder.parent / f"kept{number}")
    shutil.move(folder.parent / f"kept{number}", folder / f"kept{number}")


EXHAUSTED = tf.errors.ResourceExhaustedError


def writers(scratch: Path) -> Mapping[str, Writer]:
    """All writers of whole files; `scratch` is an empty directory on another disk."""
    small = (0,)
    return {
        "checkpoint": Writer(save, EXHAUSTED, read=saved),
        "tensorflow": Writer(_converted(tf.checkpoint.write_tensorflow, scratch), EXHAUSTED),
        "list": Writer(_list, rooms=ROOMS),
        "graph": Writer(lambda to, n: tf.export.save_graph(to / "file", _graph(n))),
        "definition": Writer(lambda to, n: tf.train.write_graph(_graph(n), to, "file")),
        "function": Writer(
            lambda to, n: tf.export.save(
                lambda x: x + np.full(N_FLOATS, n, np.float32), to / "file", np.float32(0)
            )
        ),
        "position": Writer(_position),
        "calibration": Writer(lambda to, n: write_text(f"{n}" * N_FLOATS, to / "file")),
        "picture": Writer(_picture),
        "report": Writer(_report),
        "trace": Writer(_trace, name="timeline-1.json"),
        "replayed values": Writer(_replayed),
        "results": Writer(_results),
        "optima": Writer(_optima),
        "token": Writer(_token, EXHAUSTED, "token", small),
        "certificates": Writer(_certificates, OSError, "file2", small),
        "running up": Writer(_announced, OSError, ".json", small),
        "orbax": Writer(_converted(tf.checkpoint.write_orbax, scratch), EXHAUSTED),
    }


# Files that grow ----------------------------------------------------------------------------------


def records(disk: SmallDisk, folder: Path, compression: str = "") -> None:
    """A record is written as a whole or not at all, and what is flushed is not lost."""
    path, rng = folder / "file", np.random.default_rng(0)
    sizes = (10, 300, 5_000, 200_000, 70_000)
    given = [rng.bytes(size) for size in sizes * 4]
    for room in ROOMS:
        taken = []
        writer = tf.python_io.TFRecordWriter(path, compression)
        writer.write(given[0])
        writer.flush()
        with disk.full(room):
            for record in given:
                if takes(partial(writer.write, record), EXHAUSTED, str(path)):
                    taken.append(record)
            assert 0 < len(taken) < len(given)
            fails(writer.flush, EXHAUSTED, str(path))
        writer.write(given[-1])
        writer.write(given[2])
        with disk.full():
            for _ in range(2):
                fails(writer.close, EXHAUSTED, str(path))
        writer.close()
        found = tf.python_io.tf_record_iterator(
            str(path), tf.python_io.TFRecordOptions(compression)
        )
        assert [*found] == [given[0], *taken, given[-1], given[2]]
        path.unlink()


def record_file_without_room(disk: SmallDisk, folder: Path) -> None:
    """A file that cannot be made is not there; one that never got room is closed by its block."""
    with disk.without_inodes():
        fails(lambda: tf.python_io.TFRecordWriter(folder / "file"), OSError, "file")

    def block() -> None:
        with tf.python_io.TFRecordWriter(folder / "file") as writer:
            writer.write(b"x" * 10)

    with disk.full():
        fails(block, EXHAUSTED, "file")


def events(disk: SmallDisk, folder: Path) -> None:
    """The events that were taken are in the file, each as a whole."""
    from tensorboardX.proto.event_pb2 import Event  # noqa: PLC0415 - it may not be installed

    writer = tf.summary.FileWriter(folder)
    writer.add_scalar("before", 1.0)
    writer.flush()
    taken, big = ["before"], "t" * 50_000
    with disk.full(PAGE_BYTES):
        for number in range(20):
            tag = f"{number}{big}"
            if takes(partial(writer.add_scalar, tag, 1.0), EXHAUSTED, str(folder)):
                taken.append(tag)
        assert len(taken) < 21
        fails(writer.flush, EXHAUSTED, str(folder))
    writer.add_scalar("after", 1.0)
    writer.close()
    with disk.without_inodes(), disk.full():
        fails(writer.reopen, OSError, str(folder))
    writer.reopen()
    writer.close()
    (path,) = (one for one in folder.iterdir() if one.stat().st_size > 100)
    _, *kept = map(Event.FromString, tf.python_io.tf_record_iterator(str(path)))
    assert [event.summary.value[0].tag for event in kept] == [*taken, "after"]


# Checkpoints of a saver ---------------------------------------------------------------------------


def saver(disk: SmallDisk, folder: Path) -> None:
    """A saver that found no room keeps what it had, and then as many checkpoints as it is to."""
    with tf.Graph().as_default(), tf.Session() as session:
        v = tf.Variable(np.zeros(N_FLOATS, np.float32), name="v")
        tf.constant(np.zeros(N_FLOATS, np.float32), name="c")
        session.run(v.initializer)
        saver_of_two = tf.train.Saver(max_to_keep=2)

        def save(step: int) -> None:
            saver_of_two.save(session, folder / "m", global_step=step)

        def kept() -> list[str]:
            state = tf.train.get_checkpoint_state(folder)
            assert state is not None
            for path in state.all_model_checkpoint_paths:
                with tf.checkpoint.open_checkpoint(path) as checkpoint:
                    checkpoint.verify()
            return [path.rpartition("-")[2] for path in state.all_model_checkpoint_paths]

        save(1)
        save(2)
        n_shard = N_FLOATS * 4
        former = files(folder)
        for room in (*ROOMS, n_shard, n_shard + PAGE_BYTES):
            with disk.full(room):
                fails(partial(save, 3), EXHAUSTED, "m-3")
                assert files(folder) == former
        step = 2
        for page in range(1, 16):  # room for the values, and for some of what comes after them
            before = kept()
            with disk.full(n_shard + PAGE_BYTES * (2 + page)):
                step += 1
                if takes(partial(save, step), EXHAUSTED, "checkpoint"):
                    assert kept() == [before[-1], f"{step}"]
                else:
                    assert kept() == before
                for path in folder.glob("*.meta"):  # whole, or none
                    with tf.Graph().as_default():
                        tf.train.import_meta_graph(path)
            kept()
        save(step + 1)
        save(step + 2)
        assert kept() == [f"{step + 1}", f"{step + 2}"]
        steps = {name.partition(".")[0] for name in files(folder)} - {"checkpoint"}
        assert steps == {f"m-{step + 1}", f"m-{step + 2}"}, "no other checkpoint is left"


# Run logs -----------------------------------------------------------------------------------------


def log_of_values(disk: SmallDisk, folder: Path) -> None:
    """What a log has is whole at any moment, also when a record found no room and the next does."""
    path, header = str(folder / "file"), LogHeader(VERSION, "0", this_platform())
    for room in ROOMS:
        writer = LogWriter(path, 1 << 30)
        writer.write(header)
        written = 0
        with disk.full(room):
            for number in range(1000):
                value = np.full(60, number, np.float32)  # in the log itself
                call = LogCall(number, 0, writer.values([value]))
                if not takes(partial(writer.write, call), OSError, path):
                    break
                written += 1
            assert 0 < written < 1000
            fails(writer.flush, OSError, path)
        writer.write(LogCall(7, 7, ()))
        writer.end()
        writer.close()
        calls = [one for one in decoded(Path(path).read_bytes(), path) if isinstance(one, LogCall)]
        assert [one.run for one in calls] == [*range(written), 7]
        for one in folder.iterdir():
            one.unlink()


def log_begins(disk: SmallDisk, folder: Path) -> None:
    """A log that cannot be begun leaves no files, so that it can be once there is room."""
    path = str(folder / "file")
    for full in (disk.full, disk.without_inodes):
        with full():
            fails(lambda: LogWriter(path, 1 << 30), OSError, path)
            assert files(folder) == {}
    LogWriter(path, 1 << 30).close()


def recording(disk: SmallDisk, folder: Path) -> None:
    """The run goes on when its log ends; the log has what was written, and says why it ends."""
    with in_process() as backend:
        for number, n in enumerate((10, 100_000)):
            path = str(folder / f"file{number}")
            config = tf.ConfigProto(record=path)
            with disk.full():
                fails(lambda c=config: tf.Session(backend.target, config=c), EXHAUSTED, path)
            with tf.Graph().as_default(), tf.device(backend.devices[-1]):
                x = tf.placeholder(tf.float32, [n])
                v = tf.Variable(np.zeros(n, np.float32), name="v")
                add = v.assign_add(x)
                with tf.Session(backend.target, config=config) as session:
                    session.run(v.initializer)
                    session.run(add, {x: np.ones(n, np.float32)})
                    rng = np.random.default_rng(0)
                    with disk.full():
                        for _ in range(20):
                            session.run(add, {x: rng.random(n, np.float32)})
                    session.run(add, {x: np.ones(n, np.float32)})
            log = read_logs([path])
            assert any(FULL in problem for problem in log.problems), log.problems
            runs = [
                one for one in decoded(Path(path).read_bytes(), path) if isinstance(one, LogRun)
            ]
            assert len(runs) >= 2
            backend.reset()


# Memory -------------------------------------------------------------------------------------------


def segments(disk: SmallDisk, folder: Path) -> None:
    """A segment whose memory cannot be had is none; its first use would end the process.

    Segments are files without a name, in a file system that has no limit of its own: here they are
    in this one, whose files cannot be sealed.
    """

    def create(*_: object) -> int:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR)

    with (
        mock.patch.object(os, "memfd_create", create),
        mock.patch.object(fcntl, "fcntl", return_value=0),
        disk.full(1 << 20),
    ):
        fails(lambda: shared_memory.make_shared(2 << 20), OSError, "")
        descriptor, memory = shared_memory.make_shared(1 << 19)
        memory[:] = 7
        os.close(descriptor)


# Programs -----------------------------------------------------------------------------------------


def servers(disk: SmallDisk, folder: Path) -> None:
    """Servers whose logs are on a full disk serve, and are started again; nothing ends them."""
    command = [sys.executable, "-m", "jflow", "up", "--ps", "0", "--workers", "1", "--restart"]
    command += ["--log", "info", "--logs", str(folder / "logs")]
    said = folder / "said"

    def ready() -> list[str]:
        return re.findall(r"is ready at (\S+)", said.read_text())

    places = dict.fromkeys(("HOME", "TMPDIR", "XDG_RUNTIME_DIR"), str(folder))
    environment = {**os.environ, **places}
    with said.open("ab") as output:
        up = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
    try:
        wait_until(lambda: up.poll() is not None or running_ups.running_ups(environment), "a start")
        assert up.poll() is None, said.read_text()
        with mock.patch.dict(os.environ, environment):
            _use(disk, folder, ready()[0], up)
    finally:
        up.terminate()
        assert up.wait() == 0, said.read_text()


def _use(disk: SmallDisk, folder: Path, target: str, up: subprocess.Popen[bytes]) -> None:
    """Uses the server of a `jflow up`, and kills it, while the disk is full; then once more."""
    said, log = folder / "said", folder / "logs" / "worker-0.log"
    v = tf.Variable(1.0, name="v")
    add = v.assign_add(1.0)

    def answer() -> bool:
        with tf.Session(target) as session:
            session.run(v.initializer)
            return bool(session.run(add) == 2.0)

    def pid() -> int | None:
        shown = io.StringIO()
        with redirect_stdout(shown):
            main_of_command(["status", "--json", "--timeout", "30"])
        (task,) = json.loads(shown.getvalue())["tasks"]
        return task.get("pid")

    said.write_bytes(said.read_bytes().ljust(PAGE_BYTES))  # its next line needs another page
    with disk.without_inodes(), disk.full():
        for _ in range(30):  # each session is some lines in the log
            assert answer()
        trace, shown = folder / "trace.json", io.StringIO()
        with ThreadPoolExecutor(1) as thread, redirect_stderr(shown):
            steps = thread.submit(lambda: [answer() for _ in range(20)])
            assert main_of_command(["timeline", "--steps", "1", "-o", str(trace)]) == 1
            assert all(steps.result())
        assert FULL in shown.getvalue(), shown.getvalue()
        assert not trace.exists()
        size, former = log.stat().st_size, pid()
        assert former
        os.kill(former, signal.SIGKILL)
        wait_until(lambda: pid() not in (former, None), "the server to be started again")
        assert answer()
        assert up.poll() is None
    for _ in range(30):
        assert answer()
    wait_until(lambda: log.stat().st_size > size, "lines in the log")


NEEDED = {"events": "tensorboardX", "orbax": "orbax"}
"""The packages that some cases need."""


def cases(scratch: Path) -> Mapping[str, Callable[[SmallDisk, Path], None]]:
    """All cases, by name."""
    made: dict[str, Callable[[SmallDisk, Path], None]]
    made = {name: partial(check, writer) for name, writer in writers(scratch).items()}
    made |= {
        "records": records,
        "compressed records": partial(records, compression="GZIP"),
        "record file without room": record_file_without_room,
        "log of values": log_of_values,
        "log begins": log_begins,
        "recording": recording,
        "checkpoints of a saver": saver,
        "segments": segments,
        "servers": servers,
        "events": events,
    }
    return made


def main() -> None:
    disk, scratch, wanted = SmallDisk(Path(sys.argv[1])), Path(sys.argv[2]), sys.argv[3:]
    said = {}
    for name, case in cases(scratch).items():
        if name not in wanted or (name in NEEDED and find_spec(NEEDED[name]) is None):
            continue
        folder = disk.path / "case"
        folder.mkdir()
        try:
            case(disk, folder)
            said[name] = ""
        except Exception:
            said[name] = traceback.format_exc()
        shutil.rmtree(folder)
    sys.stdout.write(json.dumps(said))


if __name__ == "__main__":
    main()
