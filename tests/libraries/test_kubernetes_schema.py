"""Manifests for Kubernetes against the schemas of its API, strictly: no unknown field either."""

from __future__ import annotations

import kubernetes_validate
import pytest

from jflow.launch.kubernetes import KubernetesCluster, certificate_files

OLDEST = "1.32"
"""The first version in which every pod of a StatefulSet has the label with its index."""


@pytest.mark.parametrize("version", [OLDEST, kubernetes_validate.latest_version()])
@pytest.mark.parametrize(("ps", "workers"), [(1, 2), (4, 64)])
@pytest.mark.parametrize("is_encrypted", [False, True])
def test_manifests_are_what_the_api_takes(
    version: str, ps: int, workers: int, is_encrypted: bool
) -> None:
    cluster = KubernetesCluster(
        "me/train:1",
        ps,
        workers,
        namespace="research",
        cpu="4",
        memory="8Gi",
        gpus=1,
        is_encrypted=is_encrypted,
        command=("python", "train.py"),
        token="x" * 64,
    )
    if is_encrypted:
        files = dict.fromkeys(certificate_files(cluster.cluster_spec()), b"-")
        cluster = KubernetesCluster("me/train:1", ps, workers, certificates=files)
    manifests = cluster.manifests()
    for manifest in manifests:
        kubernetes_validate.validate(manifest, version, strict=True)
    assert sum(one["kind"] == "StatefulSet" for one in manifests) == 2


def test_a_field_that_the_api_does_not_have_would_be_found() -> None:
    """The check of the check."""
    (wrong,) = (
        one for one in KubernetesCluster("i").manifests() if one["metadata"]["name"] == "jflow-ps"
        and one["kind"] == "StatefulSet"
    )  # fmt: skip
    wrong["spec"]["replica"] = 1
    with pytest.raises(kubernetes_validate.ValidationError, match="replica"):
        kubernetes_validate.validate(wrong, kubernetes_validate.latest_version(), strict=True)
