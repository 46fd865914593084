"""The environment variable TF_CONFIG, which gives this process its cluster and its task."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jflow.base.cluster.spec import ClusterSpec
from jflow.base.suggestions import nearest

# The keys that TensorFlow and the cluster managers for it write; others are ignored.
_KEYS = (
    "cluster",
    "environment",
    "eval_session_master",
    "job",
    "model_dir",
    "rpc_layer",
    "service",
    "session_master",
    "task",
)
_TASK_KEYS = ("cloud", "index", "trial", "type")
_N_SHOWN = 30


@dataclass(frozen=True)
class TaskConfig:
    """The content of TF_CONFIG: the cluster and the task of this process; None where not given.

    Attributes:
      cluster: the cluster; empty if not given.
      job, index: the task of this process.
      environment: the kind of cluster manager, "local" if not given.
      session_master: the target for sessions of this process, instead of its own task.
      evaluation_master: the same for evaluation.
      model_dir: directory for checkpoints and summaries.
      rpc_layer: the protocol of targets, such as "grpc".
    """

    cluster: ClusterSpec
    job: str | None
    index: int | None
    environment: str = "local"
    session_master: str | None = None
    evaluation_master: str | None = None
    model_dir: str | None = None
    rpc_layer: str | None = None


def read_tf_config(environ: Mapping[str, str] = os.environ) -> TaskConfig:
    """Reads TF_CONFIG; an unset or empty variable gives an empty cluster.

    Raises:
      ValueError: if it is not JSON (json.JSONDecodeError), has a misspelled key, or a value of
        the wrong type.
    """
    content = _object(_parse(environ.get("TF_CONFIG") or "{}", "TF_CONFIG"), "TF_CONFIG")
    _check_keys(content, _KEYS, "TF_CONFIG")
    jobs = content.get("cluster")
    task = _object(content.get("task"), 'TF_CONFIG["task"]')
    _check_keys(task, _TASK_KEYS, 'TF_CONFIG["task"]')
    return TaskConfig(
        cluster=_cluster({} if jobs is None else jobs, 'TF_CONFIG["cluster"]'),
        job=_text(task, "type", 'TF_CONFIG["task"]'),
        index=_index(task.get("index")),
        environment=_text(content, "environment", "TF_CONFIG") or "local",
        session_master=_text(content, "session_master", "TF_CONFIG"),
        evaluation_master=_text(content, "eval_session_master", "TF_CONFIG"),
        model_dir=_text(content, "model_dir", "TF_CONFIG"),
        rpc_layer=_text(content, "rpc_layer", "TF_CONFIG"),
    )


def parse_cluster(text: str, source: str) -> ClusterSpec:
    """Parses a cluster in JSON.

    Args:
      text: an object from job names to lists of addresses, or to objects from index to address.
      source: the name of the text in errors, such as "--cluster".

    Raises:
      ValueError: if the text is not JSON (json.JSONDecodeError) or not a cluster.
    """
    return _cluster(_parse(text, source), source)


def _parse(text: str, source: str) -> Any:
    def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        mapping = dict(pairs)
        for key, value in pairs:
            if mapping[key] != value:
                raise ValueError(
                    f"{source} has {key!r} twice: {value!r} and {mapping[key]!r}; leave one out"
                )
        return mapping

    try:
        return json.loads(text, object_pairs_hook=distinct)
    except json.JSONDecodeError as error:
        excerpt = text[error.pos : error.pos + _N_SHOWN]
        place = f"before {excerpt!r}" if excerpt else "at its end"
        raise json.JSONDecodeError(
            f"{source} is not JSON (names and strings in double quotes, no comma after the last "
            f"element): {error.msg} {place}",
            text,
            error.pos,
        ) from None


def _cluster(jobs: object, source: str) -> ClusterSpec:
    try:
        return ClusterSpec(jobs)  # type: ignore[arg-type]  # it checks what it gets
    except (TypeError, ValueError) as error:
        raise ValueError(f"{source}: {error}") from None


def _object(value: object, source: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        example = '{"type": "worker", "index": 0}'
        if source == "TF_CONFIG":
            example = f'{{"cluster": {{"worker": ["host:port"]}}, "task": {example}}}'
        raise ValueError(f"{source} must be an object such as {example}, got {value!r}")
    return value


def _check_keys(mapping: Mapping[str, Any], known: tuple[str, ...], source: str) -> None:
    """Raises ValueError for an unknown key that resembles a missing known one."""
    for key in mapping:
        similar = None if key in known else nearest(key, known, cutoff=0.7)
        if similar and similar not in mapping:
            raise ValueError(f"{source} has the unknown key {key!r}; did you mean {similar!r}?")


def _text(mapping: Mapping[str, Any], key: str, source: str) -> str | None:
    value = mapping.get(key)
    if value is not None and not isinstance(value, str):
        raise ValueError(f'{source}["{key}"] must be a string, got {value!r}')
    return value


def _index(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f'TF_CONFIG["task"]["index"] must be a number from 0, got {value!r}')
    return value
