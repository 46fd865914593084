"""The batch script for Slurm: what it says, and a run of it with a stand-in for `srun`."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from jflow.cli.main import main
from jflow.launch.slurm import SlurmJob
from jflow.testing import PATIENCE_S, wait_until

SRUN = f"""\
#!{sys.executable}
# Starts the tasks of a step on this host, with the variables that Slurm's manuals list: the number
# of a process is among those of all components, and the lists of a step are of one of them.
import os, signal, subprocess, sys
from itertools import dropwhile, groupby

components = [[*words] for is_end, words in groupby(sys.argv[1:], ":".__eq__) if not is_end]
counts = [int(word[9:]) for words in components for word in words if word.startswith("--ntasks=")]
processes = []
for number, (words, n_tasks) in enumerate(zip(components, counts, strict=True)):
    group = f"_HET_GROUP_{{number}}" if len(components) > 1 else ""
    told = {{
        "SLURM_STEP_NODELIST": os.environ["SLURM_JOB_NODELIST" + group],
        "SLURM_STEP_TASKS_PER_NODE": os.environ["SLURM_TASKS_PER_NODE" + group],
        "SLURM_STEP_NUM_TASKS": str(n_tasks),
        "SLURM_NTASKS": str(sum(counts)),
    }}
    command = [*dropwhile(lambda word: word.startswith("--"), words)]
    for _ in range(n_tasks):
        told["SLURM_PROCID"] = str(len(processes))
        processes.append(subprocess.Popen(command, env=os.environ | told))
signal.signal(signal.SIGTERM, lambda *_: [process.terminate() for process in processes])
for process in processes:
    process.wait()
"""
PROGRAM = """\
import os
import jflow as tf
cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver().cluster_spec()
with tf.device("/job:ps/task:0"):
    x = tf.constant(20.0) + 1.0
target = "grpc://" + cluster.task_address("worker", 0) + "?task=/job:worker/task:0"
with tf.Session(target) as session:
    print("result", session.run(x), os.environ["JFLOW_ROLE"], len(os.environ["JFLOW_TLS_DIR"]) > 0)
"""


def rendered(*arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What `jflow slurm render` prints."""
    assert main(["slurm", "render", *arguments]) == 0
    return capsys.readouterr().out


def test_a_script_asks_for_what_the_tasks_need(capsys: pytest.CaptureFixture[str]) -> None:
    text = rendered(
        *("--ps", "4", "--workers", "64", "--name", "digits", "--cpus", "8", "--gpus", "1"),
        *(
            "--memory",
            "4G",
            "--time",
            "4:00:00",
            "--option=--partition=gpu",
            "--",
            "./train",
            "a b",
        ),
        capsys=capsys,
    )
    options = [line.removeprefix("#SBATCH ") for line in text.splitlines() if "#SBATCH" in line]
    assert options == [
        *("--job-name=digits", "--ntasks=4", "--cpus-per-task=8"),
        *("--mem-per-cpu=4G", "--time=4:00:00", "--partition=gpu"),
        "hetjob",
        *("--job-name=digits", "--ntasks=64", "--cpus-per-task=8", "--gpus-per-task=1"),
        *("--mem-per-cpu=4G", "--time=4:00:00", "--partition=gpu"),
    ]
    assert text.startswith("#!/bin/bash\n#SBATCH"), "sbatch reads options before the first command"
    assert "export JFLOW_JOBS=ps=4,worker=64\n" in text
    (line,) = re.findall("^export GLIBC_TUNABLES=.*", text, re.MULTILINE)
    for given, found in ({}, "glibc.malloc.hugetlb=1"), ({"GLIBC_TUNABLES": "own"}, "own"):
        said = subprocess.run(
            ["bash", "-c", f'{line}; echo "$GLIBC_TUNABLES"'],
            env={"PATH": os.environ["PATH"], **given},
            capture_output=True,
            text=True,
            check=True,
        )
        assert said.stdout == f"{found}\n"
    assert "./train 'a b'" in text
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)


def said_by_step(script: str, programs: Path, **stand_ins: str) -> list[str]:
    """The lines that the step of a script prints, with stand-ins for programs that it calls."""
    (step,) = re.findall(r"^srun .*? &$", script, re.MULTILINE | re.DOTALL)
    for name, content in stand_ins.items():
        (programs / name).write_text(content)
        (programs / name).chmod(0o755)
    variables = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "SLURM_JOB_NODELIST": "a",
        "SLURM_TASKS_PER_NODE": "3",
        "SLURM_NTASKS": "3",
        "SLURM_CPUS_PER_TASK": "8",
        "SLURM_JOB_NODELIST_HET_GROUP_0": "b",
        "SLURM_JOB_NODELIST_HET_GROUP_1": "c",
        "SLURM_TASKS_PER_NODE_HET_GROUP_0": "2",
        "SLURM_TASKS_PER_NODE_HET_GROUP_1": "1",
    }
    environ = {name: value for name, value in os.environ.items() if name != "JAX_PLATFORMS"}
    done = subprocess.run(
        ["bash", "-uc", f"{step}\nwait"],
        env=environ | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_the_step_of_the_servers_has_the_processors_that_the_job_has(tmp_path: Path) -> None:
    """From version 22.05 on, srun does not know of them unless it is told.

    It then places 5 tasks with 2 processors each, on nodes with 8, as 3 and 2, not as 4 and 1.
    """
    script, says = SlurmJob(["./train"], cpus=8).script(), '#!/bin/bash\necho "$@"\n'
    (options,) = said_by_step(script, tmp_path, srun=says)
    assert {"--ntasks=3", "--cpus-per-task=8", "--distribution=block"} < {*options.split()}


def test_parameter_servers_are_a_component_of_their_own_where_workers_have_gpus(
    tmp_path: Path,
) -> None:
    script = SlurmJob(["./train"], ps=2, workers=1, cpus=4, gpus=1).script()
    says = '#!/bin/bash\necho "$1 $SLURM_PROCID $SLURM_STEP_NODELIST ${JAX_PLATFORMS-all}"\n'
    said = said_by_step(script, tmp_path, srun=SRUN, jflow=says)
    assert sorted(said) == ["server 0 b cpu", "server 1 b cpu", "server 2 c all"]
    (options,) = said_by_step(script, tmp_path, srun='#!/bin/bash\necho "$@"\n')
    servers, workers = options.split(" : ")
    assert {"--het-group=0", "--ntasks=2", "--cpus-per-task=4"} < {*servers.split()}
    assert {"--het-group=1", "--ntasks=1", "--cpus-per-task=4"} < {*workers.split()}


@pytest.mark.parametrize(("ps", "workers", "gpus"), [(1, 2, 0), (0, 2, 1), (2, 0, 1)])
def test_a_job_whose_tasks_need_the_same_has_one_component(
    ps: int, workers: int, gpus: int
) -> None:
    text = SlurmJob(["./train"], ps=ps, workers=workers, gpus=gpus).script()
    assert "hetjob" not in text
    assert "JAX_PLATFORMS" not in text
    assert ("--gpus-per-task" in text) == bool(gpus and workers)


@pytest.mark.parametrize("options", [(), ("--gpus", "1"), ("--insecure",)])
def test_shellcheck_has_nothing_against_a_script(
    options: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = rendered(*options, "--", "python", "train.py", capsys=capsys)
    spaces = re.findall(r"(?m)^\s*(?:\w+=\S* +)*\w+= +\S", script)
    assert not spaces, "SC1007: empty values are quoted"
    program = shutil.which("shellcheck")
    if program is not None:
        (tmp_path / "script").write_text(script)
        command = [program, tmp_path / "script"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.stdout == ""


def test_without_certificates_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    text = rendered("--insecure", "--", "./train", capsys=capsys)
    assert "export JFLOW_INSECURE=1" in text
    assert "certs init" not in text
    assert "JFLOW_INSECURE" not in SlurmJob(["./train"]).script()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--ps", "0", "--workers", "0"], "at least one task"),
        (["--cpus", "0"], "at least one processor"),
        (["--name", "a b"], "not an option of sbatch"),
        (["--option=--partition=gpu\nrm -rf ~"], "not an option of sbatch"),
    ],
)
def test_what_cannot_be_rendered_is_a_usage_error(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["slurm", "render", *arguments, "--", "./train"]) == 2
    assert words in capsys.readouterr().err


def test_the_cluster_of_a_job_is_that_of_its_allocation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    variables = {
        "SLURM_JOB_NODELIST": "tux[08-09],login",
        "SLURM_TASKS_PER_NODE": "2(x2),1",
        "JFLOW_JOBS": "ps=1,worker=4",
        "JFLOW_PORT": "20032",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert main(["slurm", "cluster"]) == 0
    assert json.loads(capsys.readouterr().out)["cluster"] == {
        "ps": ["tux08:20032"],
        "worker": ["tux08:20033", "tux09:20032", "tux09:20033", "login:20032"],
    }
    monkeypatch.delenv("SLURM_JOB_NODELIST")
    assert main(["slurm", "cluster"]) == 2
    assert "not in a Slurm job" in capsys.readouterr().err


@pytest.fixture
def job(tmp_path: Path) -> dict[str, str]:
    """The environment of a batch script on a machine with one host, and a home directory."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (
        ("srun", SRUN),
        ("jflow", f'#!/bin/bash\nexec {sys.executable} -m jflow "$@"'),
    ):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("JFLOW_")}
    kept.pop("TF_CONFIG", None)
    return kept | {
        "HOME": str(tmp_path),
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_JOB_NODELIST": "localhost",
        "SLURM_TASKS_PER_NODE": "2",
        "SLURM_NTASKS": "2",
        "SLURM_CPUS_PER_TASK": "1",
    }


@pytest.mark.long
def test_a_job_starts_its_cluster_encrypted_runs_its_program_and_leaves_nothing(
    job: dict[str, str], tmp_path: Path
) -> None:
    script = SlurmJob([sys.executable, "-c", PROGRAM], ps=1, workers=1).script()
    done = subprocess.run(
        ["bash"], input=script, env=job, capture_output=True, text=True, timeout=PATIENCE_S * 4,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "result 21.0 client True" in done.stdout
    assert not [*tmp_path.glob(".jflow-*")], "the certificates of the job are gone"


@pytest.mark.long
def test_a_job_ends_with_the_exit_code_of_its_program_and_when_slurm_ends_it(
    job: dict[str, str], tmp_path: Path
) -> None:
    script = SlurmJob(["sh", "-c", "echo begun; sleep 1000"], ps=1, workers=1).script()
    (tmp_path / "job.sh").write_text(script)
    with (tmp_path / "out").open("w") as out:
        running = subprocess.Popen(
            ["bash", str(tmp_path / "job.sh")], env=job, stdout=out, start_new_session=True
        )
    try:
        wait_until(lambda: "begun" in (tmp_path / "out").read_text(), "the program to begin")
        running.send_signal(signal.SIGTERM)
        assert running.wait(PATIENCE_S) == 143
        assert not [*tmp_path.glob(".jflow-*")]
        assert "stops" not in (tmp_path / "out").read_text(), "Slurm ends the servers, too"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
