"""What Kubernetes does with a manifest before a container starts, as far as tests need it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_]*)\)")


def objects_of(manifests: Sequence[Mapping[str, Any]], kind: str) -> Iterator[Mapping[str, Any]]:
    """The objects of a kind."""
    return (one for one in manifests if one["kind"] == kind)


def pod_of(manifests: Sequence[Mapping[str, Any]], name: str) -> Mapping[str, Any]:
    """The specification of the pods of a StatefulSet or Job with this name."""
    (owner,) = (
        one
        for one in manifests
        if one["kind"] in ("StatefulSet", "Job") and one["metadata"]["name"] == name
    )
    return owner["spec"]["template"]["spec"]


def environment(
    container: Mapping[str, Any],
    pod: str,
    namespace: str,
    secrets: Mapping[str, Mapping[str, str]],
) -> dict[str, str]:
    """The variables of a container in a pod with this name, which ends with its index.

    The rules are those of "Define Dependent Environment Variables" in the manual of Kubernetes: one
    may refer to those before it, what is not known stays as it is, and "$$" is a dollar sign.
    """
    fields = {
        "metadata.name": pod,
        "metadata.namespace": namespace,
        "metadata.labels['apps.kubernetes.io/pod-index']": pod.rpartition("-")[2],
    }
    found = {"HOSTNAME": pod}
    for variable in container.get("env", ()):
        if "value" in variable:
            value = expanded(variable["value"], found)
        elif "fieldRef" in variable["valueFrom"]:
            value = fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]
        else:
            secret = variable["valueFrom"]["secretKeyRef"]
            value = secrets[secret["name"]][secret["key"]]
        found[variable["name"]] = value
    return found


def expanded(text: str, known: Mapping[str, str]) -> str:
    """A value or a word of a command, with the variables that it refers to."""

    def replace(found: re.Match[str]) -> str:
        return "$" if found[1] is None else known.get(found[1], found[0])

    return _REFERENCE.sub(replace, text)
