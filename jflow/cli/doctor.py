"""`jflow doctor`: which cluster this process has and why, and what keeps it from working."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from jflow.base.text import printable, table
from jflow.cli.diagnosis import Diagnosis, Finding, examine
from jflow.cli.targets import add_json, add_options, candidates
from jflow.errors import OpError

if TYPE_CHECKING:
    from jflow.base.cluster import ClusterSpec
    from jflow.cli.probing import TaskProbe

_N_SHOWN = 100


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command to those of `jflow`."""
    doctor = commands.add_parser(
        "doctor", help="which cluster and task this process has, and what is wrong with them"
    )
    add_options(doctor)
    add_json(doctor)
    doctor.set_defaults(run=_doctor)


def _doctor(options: argparse.Namespace) -> int:
    if not options.timeout > 0:
        raise ValueError(f"--timeout must be more than 0, got {options.timeout:g}")
    diagnosis = examine(os.environ)
    cluster, source = _cluster(diagnosis, options.target, options.timeout)
    probes: list[TaskProbe] = []
    if cluster is not None:
        from jflow.cli.probing import probe_all  # noqa: PLC0415 - imports gRPC and JAX

        membership = diagnosis.membership
        own = None if membership is None or options.target else membership.task
        probes, findings = probe_all(cluster, own, source, options.timeout)
        diagnosis.findings += findings
    if options.json:
        print(json.dumps(_content(diagnosis, probes, source), indent=2))
    else:
        print(printable(_text(diagnosis, probes, source), allowed="\n"))
    return int(any(finding.is_problem for finding in diagnosis.findings))


def _cluster(
    diagnosis: Diagnosis, target: str | None, seconds: float
) -> tuple[ClusterSpec | None, str]:
    """Returns the cluster to call and its source; None, with a finding, if there is none."""
    if target is None:
        if diagnosis.membership is not None:
            return diagnosis.membership.cluster, diagnosis.membership.source
        if any(finding.code in ("malformed", "contradiction") for finding in diagnosis.findings):
            return None, ""
    from jflow.cli.probing import cluster_at, not_listed  # noqa: PLC0415 - as above

    try:
        return cluster_at(candidates(target), seconds), target or "jflow up"
    except OpError as error:
        diagnosis.findings.append(not_listed(error))
    except ValueError as error:
        if target is not None:
            raise
        what = (
            f"this process belongs to no cluster, so programs run in it alone: {error}; or set "
            "TF_CONFIG, or start `jflow up`, or let mpirun, srun or Kubernetes start the program"
        )
        diagnosis.findings.append(Finding("no_cluster", what))
    return None, ""


def _content(diagnosis: Diagnosis, probes: Sequence[TaskProbe], source: str) -> dict[str, Any]:
    """Returns all findings as JSON data."""
    task = None if diagnosis.membership is None else diagnosis.membership.task
    return {
        "source": source,
        "task": "" if task is None else str(task),
        "sources": [asdict(one) for one in diagnosis.sources],
        "tasks": [
            {
                "name": str(probe.task),
                "address": probe.address,
                "state": probe.state,
                "version": probe.version,
                "incarnation": probe.incarnation,
            }
            for probe in probes
        ],
        "findings": [asdict(one) for one in diagnosis.findings],
    }


def _text(diagnosis: Diagnosis, probes: Sequence[TaskProbe], source: str) -> str:
    """Returns all findings as text."""
    sources = [("*" if one.has_won else "", one.name, one.says) for one in diagnosis.sources]
    parts = [table(["", "SOURCE", "SAYS"], sources)]
    if seen := [
        f"{name}={text[:_N_SHOWN]}{'...' if len(text) > _N_SHOWN else ''}"
        for one in diagnosis.sources
        if one.variables
        for name, text in one.variables.items()
    ]:
        parts.append("\n".join(seen))
    if probes:
        headers = ["TASK", "STATE", "ADDRESS", "VERSION", "INCARNATION"]
        rows = [
            (
                *(probe.task, probe.state, probe.address, probe.version or "-"),
                "-" if probe.incarnation is None else f"{probe.incarnation:x}",
            )
            for probe in probes
        ]
        parts.append(f"cluster of {source}\n{table(headers, rows)}")
    problems = [one for one in diagnosis.findings if one.is_problem]
    notes = [one for one in diagnosis.findings if not one.is_problem]
    conclusions = [f"problem: {one.what} [{one.code}]" for one in problems]
    conclusions += [f"note: {one.what} [{one.code}]" for one in notes]
    parts.append("\n".join(conclusions or ["no problem was found"]))
    return "\n\n".join(parts)
