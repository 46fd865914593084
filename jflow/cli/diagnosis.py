"""What `jflow doctor` finds without calling anything: the sources, the cluster, this task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jflow.base.cluster import ClusterSpec, Task
from jflow.base.cluster.membership import (
    EVALUATOR,
    SOURCES,
    Membership,
    MembershipSource,
    find_membership,
    is_client,
)
from jflow.base.suggestions import nearest

_MAX_SHOWN = 200
_VARIABLES = (
    *("TF_CONFIG", "JFLOW_CHECKPOINT_ROOTS", "JFLOW_CLUSTER", "JFLOW_DATA_ROOTS", "JFLOW_HOSTS"),
    *("JFLOW_INSECURE", "JFLOW_JOBS", "JFLOW_LIVENESS_S", "JFLOW_POD", "JFLOW_PORT", "JFLOW_ROLE"),
    *("JFLOW_SERVICE", "JFLOW_TLS_DIR", "JFLOW_TOKEN", "JFLOW_TOKEN_FILE", "JFLOW_TRANSPORT"),
    "JFLOW_USERS_FILE",
)
_BEGINNINGS = ("TF", "JFLOW")


@dataclass(frozen=True)
class Finding:
    """A defect of the environment, certain or possible, that keeps a cluster from working.

    Attributes:
      code: what it is, for programs, such as "port_taken".
      what: what it is, with both sides of a contradiction, and how to mend it.
      is_problem: whether it has to be mended; else it only says how things are.
    """

    code: str
    what: str
    is_problem: bool = True


@dataclass(frozen=True)
class SourceReport:
    """What one source says of the membership of this process.

    Attributes:
      name: the source.
      variables: its environment variables, cut to 200 characters each.
      says: what it says, or why it says nothing.
      has_won: whether its cluster is used.
    """

    name: str
    variables: Mapping[str, str]
    says: str
    has_won: bool = False


@dataclass
class Diagnosis:
    """The findings about the environment, before any task is called.

    Attributes:
      sources: what was asked, in order.
      membership: what they say together; None if nothing, or a contradiction.
      findings: what is wrong.
    """

    sources: Sequence[SourceReport]
    membership: Membership | None
    findings: list[Finding] = field(default_factory=list)


def examine(environ: Mapping[str, str]) -> Diagnosis:
    """Reads all sources of membership and checks them."""
    findings = [*_misspelt(environ)]
    membership = None
    try:
        membership = find_membership(environ)
    except ValueError as error:
        code = "contradiction" if " contradict each other" in str(error) else "malformed"
        findings.append(Finding(code, str(error)))
    else:
        findings += _of_task(membership, environ)
    won = "" if membership is None else membership.source
    return Diagnosis([_report(source, environ, won) for source in SOURCES], membership, findings)


def _report(source: MembershipSource, environ: Mapping[str, str], won: str) -> SourceReport:
    seen = {
        name: text[:_MAX_SHOWN]
        for name, text in sorted(environ.items())
        if name.startswith(source.variables)
    }
    try:
        membership = source.read(environ)
    except (ValueError, RuntimeError) as error:
        return SourceReport(source.name, seen, f"an error: {error}")
    if membership is None:
        which = ", ".join(
            f"{name}{'' if name == 'TF_CONFIG' else '...'}" for name in source.variables
        )
        silent = "nothing that makes a cluster" if seen else f"nothing: {which} is not set"
        return SourceReport(source.name, seen, silent)
    return SourceReport(source.name, seen, membership_source_text(membership), source.name == won)


def membership_source_text(membership: Membership) -> str:
    """Returns the task and cluster that a source names, as text."""
    jobs = {job: membership.cluster.num_tasks(job) for job in membership.cluster.jobs}
    listed = ", ".join(f"{n} {job}" for job, n in jobs.items())
    return f"{membership.task or 'no task'} of a cluster with {listed}"


def _misspelt(environ: Mapping[str, str]) -> list[Finding]:
    """Returns variables whose names nearly equal those that are read."""
    findings = []
    for name in sorted(environ):
        if name in _VARIABLES or not name.upper().startswith(_BEGINNINGS):
            continue
        similar = nearest(name, _VARIABLES, cutoff=0.85)
        if similar and similar not in environ:
            what = f"the variable {name} is not read; did you mean {similar}? Rename it"
            findings.append(Finding("misspelt_variable", what))
    return findings


def _of_task(membership: Membership | None, environ: Mapping[str, str]) -> list[Finding]:
    """Returns findings about the task of this process."""
    try:
        if is_client(environ) or membership is None:
            return []
    except ValueError as error:
        return [Finding("malformed", str(error))]
    task, source, cluster = membership.task, membership.source, membership.cluster
    if task is None:
        return [
            Finding(
                "no_task",
                f"{source} has a cluster and no task of this process, which is fine for a client "
                '(JFLOW_ROLE=client) and `jflow` itself; for a task, set TF_CONFIG["task"]',
                is_problem=False,
            )
        ]
    if task.job != EVALUATOR and task not in set(cluster.tasks()):
        return [
            Finding(
                "unknown_task",
                f"this process is {task} by {source}, and the cluster has no such task; it has "
                f"{', '.join(map(str, cluster.tasks()))}; correct the task, or add it",
            )
        ]
    return []


def differences(views: Mapping[str, ClusterSpec]) -> list[Finding]:
    """Returns the tasks that have different addresses for different members of the cluster.

    Args:
      views: the cluster as it is known, by the name of what knows it.
    """
    known: dict[Task, dict[str, str]] = {}
    for name, cluster in views.items():
        for task in cluster.tasks():
            address = cluster.task_address(task.job, task.index)
            known.setdefault(task, {}).setdefault(address, name)
    findings = []
    for task, addresses in sorted(known.items()):
        if len(addresses) > 1:
            sides = ", and ".join(f"at {at} by {name}" for at, name in addresses.items())
            findings.append(
                Finding(
                    "other_cluster",
                    f"{task} is {sides}; give all tasks one cluster, and start those again that "
                    "have another",
                )
            )
    return findings
