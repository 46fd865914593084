"""`jflow k8s`, `jflow slurm` and `jflow certs`: what a cluster on several machines starts with."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from jflow.base.cluster import ClusterSpec, SlurmClusterResolver, parse_cluster, read_tf_config
from jflow.cli.roles import ROLES, role_argument
from jflow.cli.server_options import add_sizes, add_stuck_options
from jflow.errors import NotFoundError
from jflow.launch.kubernetes import KubernetesCluster, certificate_files, to_yaml
from jflow.launch.slurm import SlurmJob

_K8S_EPILOG = """\
The output is for `kubectl apply -f -`. The program behind `--`, if there is
one, runs as a Job when all tasks answer. See docs/deploy.md.
"""
_SLURM_EPILOG = """\
The script is for sbatch; it starts the cluster, then the program behind `--`. See docs/deploy.md.
"""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the commands to those of `jflow`."""
    _add_certs(commands)
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


def _add_certs(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `jflow certs init`."""
    certs = commands.add_parser(
        "certs", help="makes certificates, for clusters on several machines"
    )
    what = certs.add_subparsers(required=True, metavar="WHAT")
    init = what.add_parser("init", help="makes the certificates of a cluster", epilog=_EPILOG)
    init.add_argument("directory", type=Path, metavar="DIR", help="where to write them")
    init.add_argument(
        "--cluster",
        metavar="JSON|FILE",
        help="the cluster, as for `jflow server`, or a file that has it (default: TF_CONFIG)",
    )
    init.add_argument(
        "--days",
        type=int,
        default=_DAYS,
        metavar="N",
        help="how long the certificates are valid (default: %(default)s)",
    )
    init.add_argument(
        "--client-role",
        action="append",
        type=role_argument,
        default=[],
        metavar="ROLE",
        help="also makes client-of-role-ROLE.pem, which allows no higher role than this one: "
        f"{ROLES}; may be repeated. Its user gets it as client.pem",
    )
    init.set_defaults(run=_init)


def _add_sizes(parser: argparse.ArgumentParser, named: str) -> None:
    add_sizes(parser)
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
    add_stuck_options(parser)
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
        abandoned_limit_s=options.abandoned_limit_s,
        restarts_when_stuck=options.restart_when_stuck,
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
    """Returns the content of a private file; that of the authority may be read by others."""
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


_DAYS = 365
_EPILOG = """\
Writes DIR/ca.crt and ca.key, the authority, and for each task and for clients a file with a private
key and a certificate, such as DIR/worker-1.pem and DIR/client.pem. Copy ca.crt and the file of each
task to its machine, ca.crt and client.pem to those of clients, into a directory of mode 700 that
JFLOW_TLS_DIR names there. Keep ca.key here: it makes the certificate of any task. Run the command
again to renew all certificates, or after adding a task; the authority stays.
"""


def _init(options: argparse.Namespace) -> None:
    try:
        from jflow.net.wire.authority import write_certificates  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "cryptography":
            raise
        raise NotFoundError(
            "making certificates needs the package cryptography; install it by "
            "pip install 'jflow[tls]'"
        ) from None
    if options.days < 1:
        raise ValueError(f"--days must be at least 1, got {options.days}")
    cluster = _cluster(options.cluster)
    if not cluster:
        raise ValueError("no cluster: give --cluster, or set TF_CONFIG")
    try:
        roles = options.client_role
        written = write_certificates(options.directory, cluster, options.days, roles)
    except OSError as error:
        raise ValueError(f"the certificates cannot be written: {error}") from error
    for path in written:
        print(path)
    print(
        f"valid for {options.days} days; copy each file and {options.directory / 'ca.crt'} to its "
        "machine, and name the directory there by JFLOW_TLS_DIR"
    )


def _cluster(text: str | None) -> ClusterSpec:
    if text is None:
        return read_tf_config().cluster
    if text.lstrip().startswith("{"):
        return parse_cluster(text, "--cluster")
    try:
        content = Path(text).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(
            f"--cluster: {text!r} is neither JSON nor a file that can be read: {error}"
        ) from None
    return parse_cluster(content, f"--cluster {text}")
