"""What the image installs is pinned by hashes, and the bill of materials is compared with it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from jflow.launch.kubernetes import USER
from tools.check_sbom import differences, name_of, pins_of

ROOT = Path(__file__).parents[1]
IMAGE = ROOT / "examples/kubernetes"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.mark.parametrize(
    ("lock", "wanted"),
    [
        ("requirements.txt", PROJECT["project"]["dependencies"]),
        ("build-requirements.txt", PROJECT["build-system"]["requires"]),
    ],
)
def test_the_image_has_each_dependency_in_a_version_that_the_project_takes(
    lock: str, wanted: list[str]
) -> None:
    text = (IMAGE / lock).read_text()
    pins = pins_of(text)
    for one in map(Requirement, wanted):
        assert one.specifier.contains(pins[name_of(one.name)]), f"{one}: run `make lock`"
    assert not re.search(r"index-url|find-links|trusted-host|://", text), "a lock names no host"


@pytest.mark.parametrize("line", ["jax", "jax>=0.10", "jax==0.12", "jax==0.12 --hash=sha256:1"])
def test_what_is_not_pinned_by_a_hash_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="with hashes"):
        pins_of(f"numpy==2.0 \\\n    --hash=sha256:{'0' * 64}\n    # via jax\n{line}\n")


def test_the_image_installs_by_hashes_and_runs_as_the_user_of_the_pods() -> None:
    lines = re.sub(r"\\\n\s*", "", (IMAGE / "Dockerfile").read_text()).splitlines()
    assert [line for line in lines if line.startswith("FROM")] == [
        "FROM ${BASE} AS built",
        "FROM ${BASE}",
    ]
    installs = [line for line in lines if "pip install" in line or "pip wheel" in line]
    assert len(installs) == 4
    for line in installs:
        is_own = "--no-deps" in line and ("--no-index" in line or "--no-build-isolation" in line)
        assert is_own or "--require-hashes" in line, line
    assert all("--checksum=sha256:" in line for line in lines if line.startswith("ADD"))
    assert lines[-1] == f"USER {USER}:{USER}"
    copied = {word for line in lines if line.startswith("COPY") for word in line.split()[1:-1]}
    for path in copied - {"--from=built", "/wheels"}:
        assert (ROOT / path).exists(), path
    hook = PROJECT["tool"]["hatch"]["build"]["hooks"]["custom"]["path"]
    assert {"pyproject.toml", PROJECT["project"]["readme"], hook, "jflow"} <= copied


def bill(**versions: str) -> dict[str, Any]:
    """A bill of materials with these packages."""
    return {
        "components": [
            {"name": name, "version": version, "bom-ref": f"{name}=={version}"}
            for name, version in versions.items()
        ],
        "dependencies": [{"ref": f"{name}=={version}"} for name, version in versions.items()],
    }


def test_a_bill_that_is_not_what_is_installed_and_locked_is_found() -> None:
    whole, installed, pins = bill(jflow="1", jax="2"), {"jflow": "1", "jax": "2"}, {"jax": "2"}
    assert [*differences(whole, installed, pins)] == []
    assert [*differences(bill(jflow="1"), installed, pins)] == [
        "jax: the bill has None, the environment 2"
    ]
    assert [*differences(whole, installed, {"jax": "1"})] == [
        "jax: the lock has 1, the environment 2"
    ]
    assert [*differences(whole, installed, {"jax": "2", "numpy": "1"})] == [
        "numpy: the lock has 1, the environment None"
    ]
    assert [*differences(bill(jax="2"), {"jax": "2"}, pins)] == ["jflow is not in the bill"]
    assert [
        *differences({**whole, "dependencies": whole["dependencies"][:1]}, installed, pins)
    ] == ["jax==2: the bill does not say what it depends on"]
