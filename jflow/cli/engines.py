"""`jflow k8s` and `jflow slurm`: what starts a cluster on an engine that is there already."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from jflow.base.cluster import SlurmClusterResolver
from jflow.errors import NotFoundError
from jflow.launch.kubernetes import KubernetesCluster, certificate_files
from jflow.launch.slurm import SlurmJob
from jflow.launch.yaml import to_yaml

_K8S_EPILOG = """\
The output is for `kubectl apply -f -`. The program behind `--`, if there is
one, runs as a Job when all tasks answer. See docs/deploy.md.
"""
_SLURM_EPILOG = """\
The script is for sbatch; it starts the cluster, then the program behind `--`. See docs/deploy.md.
"""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the commands to those of `jflow`."""
    k8s = commands.add_parser("k8s", help="prepares a cluster on Kubernetes")
    what = k8s.add_subparsers(required=True, metavar="WHAT")
    render = what.add_parser("render", help="prints the manifests of a cluster", epilog=_K8S_EPILOG)
    _add_kubernetes(render)
    render.set_defaults(run=_render_kubernetes)
    cluster = what.add_parser(
        "cluster", help="prints the addresses of its tasks, for `jflow certs init`"
    )
    _add_place(cluster)
    cluster.set_defaults(run=_show_kubernetes)

    slurm = commands.add_parser("slurm", help="prepares a cluster on Slurm")
    what = slurm.add_subparsers(required=True, metavar="WHAT")
    render = what.add_parser(
        "render", help="prints the batch script of a cluster", epilog=_SLURM_EPILOG
    )
    _add_slurm(render)
    render.set_defaults(run=_render_slurm)
    cluster = what.add_parser("cluster", help="prints TF_CONFIG of the job that this runs in")
    cluster.set_defaults(run=_show_slurm)


def _add_sizes(parser: argparse.ArgumentParser, named: str) -> None:
    parser.add_argument(
        "--ps", type=int, default=1, metavar="N", help="parameter servers (default: %(default)s)"
    )
    parser.add_argument(
        "--workers", type=int, default=2, metavar="N", help="workers (default: %(default)s)"
    )
    parser.add_argument("--name", default="jflow", help=f"{named} (default: %(default)s)")


def _add_program(parser: argparse.ArgumentParser, n_words: str) -> None:
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="without certificates: all users of the network may read and change what passes",
    )
    parser.add_argument(
        "command", nargs=n_words, metavar="COMMAND", help="the program, behind `--`"
    )


def _add_place(parser: argparse.ArgumentParser) -> None:
    _add_sizes(parser, "what the names of all objects begin with")
    parser.add_argument(
        "--namespace",
        metavar="NAME",
        help="where they are (default: that of kubectl; for addresses, `default`)",
    )
    parser.add_argument(
        "--port", type=int, default=2222, metavar="N", help="of each task (default: %(default)s)"
    )
    parser.add_argument(
        "--domain",
        default="cluster.local",
        help="the domain of the cluster's DNS (default: %(default)s)",
    )


def _add_kubernetes(parser: argparse.ArgumentParser) -> None:
    _add_place(parser)
    parser.add_argument("--image", required=True, help="the container image, which has jflow")
    parser.add_argument("--cpu", metavar="N", help="processors of each task, such as 4 or 500m")
    parser.add_argument("--memory", metavar="SIZE", help="memory of each task, such as 8Gi")
    parser.add_argument("--gpus", type=int, default=0, metavar="N", help="GPUs of each worker")
    parser.add_argument(
        "--token",
        type=Path,
        metavar="FILE",
        help="renders the secret NAME-token with what is in this file (default: it is there "
        "already)",
    )
    parser.add_argument(
        "--certificates",
        type=Path,
        metavar="DIR",
        help="renders the secret NAME-certificates with the files of `jflow certs init` in this "
        "directory (default: it is there already)",
    )
    _add_program(parser, "*")


def _add_slurm(parser: argparse.ArgumentParser) -> None:
    _add_sizes(parser, "the name of the job")
    parser.add_argument("--cpus", type=int, default=1, metavar="N", help="processors of each task")
    parser.add_argument("--gpus", type=int, default=0, metavar="N", help="GPUs of each worker")
    parser.add_argument("--memory", metavar="SIZE", help="memory of each processor, such as 4G")
    parser.add_argument("--time", metavar="TIME", help="how long the job may take, as in 4:00:00")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="OPTION",
        help="a further option of sbatch, as in --option=--partition=gpu; may be repeated",
    )
    _add_program(parser, "+")


def _render_kubernetes(options: argparse.Namespace) -> None:
    if options.insecure and options.certificates:
        raise ValueError("--insecure and --certificates contradict each other; give one of them")
    cluster = KubernetesCluster(
        options.image,
        **_place(options),
        cpu=options.cpu,
        memory=options.memory,
        gpus=options.gpus,
        is_encrypted=not options.insecure,
        command=options.command,
        token=None if options.token is None else _secret(options.token).decode().strip(),
        certificates=None if options.certificates is None else _certificates(options),
    )
    sys.stdout.write(to_yaml(cluster.manifests()))


def _show_kubernetes(options: argparse.Namespace) -> None:
    cluster = KubernetesCluster("-", **_place(options))
    print(json.dumps(cluster.cluster_spec().as_dict()))


def _place(options: argparse.Namespace) -> dict[str, Any]:
    names = ("ps", "workers", "name", "namespace", "port", "domain")
    return {name: getattr(options, name) for name in names}


def _certificates(options: argparse.Namespace) -> dict[str, bytes]:
    cluster = KubernetesCluster("-", **_place(options)).cluster_spec()
    return {name: _secret(options.certificates / name) for name in certificate_files(cluster)}


def _secret(path: Path) -> bytes:
    """The content of a private file; that of the authority may be read by others."""
    from jflow.net.wire.private_files import read_private  # noqa: PLC0415 - no other verb needs it

    try:
        return read_private(path, 0o022 if path.name == "ca.crt" else 0o077)
    except OSError as error:
        raise NotFoundError(f"{path} cannot be read: {error.strerror}") from error


def _render_slurm(options: argparse.Namespace) -> None:
    job = SlurmJob(
        options.command,
        options.ps,
        options.workers,
        options.name,
        options.cpus,
        options.gpus,
        options.memory,
        options.time,
        options.option,
        is_encrypted=not options.insecure,
    )
    sys.stdout.write(job.script())


def _show_slurm(_: argparse.Namespace) -> None:
    try:
        cluster = SlurmClusterResolver(auto_set_gpu=False).cluster_spec()
    except RuntimeError as error:
        raise ValueError(str(error)) from error
    print(json.dumps({"cluster": cluster.as_dict()}))
