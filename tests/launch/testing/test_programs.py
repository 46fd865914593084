"""Programs and clusters in processes of their own: what a test can do to them, and what is left."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import psutil
import pytest

import jflow as tf
from jflow.testing import (
    ProcessCluster,
    ProgramProcess,
    cpu_time,
    free_hosts,
    free_ports,
    no_leaks,
    run_program,
    wait_until,
)

ECHO = "import sys\nfor line in sys.stdin: print('got', line, end='', flush=True)"
BUSY = "while True: pass"


def test_a_program_reads_and_writes_lines_until_its_end() -> None:
    with ProgramProcess(["-c", ECHO]) as program:
        assert program.exit_code is None
        for text in ("one", "two"):
            program.write_line(text)
            assert program.read_line() == f"got {text}"
        program.terminate()
        assert program.wait() == -signal.SIGTERM
        assert program.read_line() == ""


def test_a_paused_program_computes_nothing_until_it_is_resumed() -> None:
    with ProgramProcess(["-c", BUSY]) as program:
        wait_until(lambda: cpu_time(program.pid) > 0.2)
        program.pause()
        process = psutil.Process(program.pid)
        wait_until(lambda: process.status() == psutil.STATUS_STOPPED)
        before = cpu_time(program.pid)
        with pytest.raises(AssertionError, match=r"the end of process .* without progress"):
            program.wait(patience=0.2)
        assert cpu_time(program.pid) == before
        program.resume()
        wait_until(lambda: cpu_time(program.pid) > before)
        pid = program.pid
    assert not psutil.pid_exists(pid)


def test_a_paused_program_is_ended_with_its_block() -> None:
    with ProgramProcess(["-c", ECHO]) as program:
        program.pause()
        pid = program.pid
    assert not psutil.pid_exists(pid)


def test_the_patience_is_for_the_time_without_progress() -> None:
    code = "import time\nend = time.time() + 1.0\nwhile time.time() < end: pass\nprint('done')"
    assert run_program(["-c", code], patience=0.4).stdout == "done\n"
    with pytest.raises(AssertionError, match="without progress"):
        run_program(["-c", "import time; time.sleep(60)"], patience=1.0)


def test_what_a_program_prints_and_its_exit_code_are_returned() -> None:
    code = (
        "import os, sys; print(os.environ['A'], os.getcwd()); print('no', file=sys.stderr); exit(3)"
    )
    done = run_program(["-c", code], {"A": "b"}, cwd="/")
    assert (done.stdout, done.stderr, done.returncode) == ("b /\n", "no\n", 3)


def test_a_task_is_paused_and_resumed_and_restarted_at_its_address_with_a_new_life() -> None:
    a, x = tf.constant(1.0) * 2, tf.Variable(1.0, name="x")
    with no_leaks(), ProcessCluster(ps=1, workers=1) as cluster:
        with tf.Session(cluster.target("ps")) as session:
            assert session.run(a) == 2.0
            cluster.pause("ps")
            with pytest.raises(tf.errors.DeadlineExceededError):
                session.run(a, options=tf.RunOptions(timeout_in_ms=50))
            cluster.resume("ps")
            assert session.run(a) == 2.0
        with tf.Session(cluster.target()) as session:
            session.run(x.initializer)
        pid, address = cluster.pid("ps"), cluster.address("ps")
        cluster.kill("ps")
        assert not psutil.pid_exists(pid)
        cluster.restart("ps")
        assert cluster.address("ps") == address
        assert cluster.pid("ps") != pid
        with tf.Session(cluster.target()) as session:
            with pytest.raises(tf.errors.FailedPreconditionError):
                session.run(x)
            session.run(x.initializer)
            assert session.run(x) == 1.0
        cluster.pause("worker")


def test_nothing_is_left_of_a_cluster_that_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JFLOW_TOKEN", "short")
    with no_leaks(), pytest.raises(tf.errors.InvalidArgumentError, match="JFLOW_TOKEN"):
        ProcessCluster()


def test_a_cluster_ends_with_the_process_that_started_it() -> None:
    code = (
        "from jflow.testing import ProcessCluster\n"
        "import sys\n"
        "c = ProcessCluster(ps=1, workers=1)\n"
        "print(c.pid('ps'), c.pid('worker'), flush=True)\n"
        "sys.stdin.read()\n"
    )
    with ProgramProcess(["-c", code]) as parent:
        pids = [int(pid) for pid in parent.read_line().split()]
        assert all(psutil.pid_exists(pid) for pid in pids)
        parent.kill()
        wait_until(lambda: not any(psutil.pid_exists(pid) for pid in pids))


def test_leaks_are_named() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    over = threading.Event()
    thread = threading.Thread(target=over.wait, name="left")
    with pytest.raises(AssertionError, match=r"has left .*thread 'left'"), no_leaks(0.05):
        thread.start()
    over.set()
    thread.join()
    process.communicate()
    with (
        pytest.raises(AssertionError, match=r"has left \['port \d+'\]"),
        no_leaks(0.05),
    ):
        server = tf.train.Server({"local": ["127.0.0.1:0"]})
    server.stop()
    with (
        no_leaks(),
        tf.train.Server({"local": ["127.0.0.1:0"]}) as server,
        tf.Session(server.target) as session,
    ):
        session.run(tf.constant(1.0))
    with pytest.raises(AssertionError, match=r"has left \['process \d+'\]"), no_leaks(0.05):
        process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process.communicate()


def test_ports_and_hosts_differ() -> None:
    assert len(set(free_ports(5))) == 5
    assert len(set(free_hosts(3))) == 3
