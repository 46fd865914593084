"""`jflow certs init`: makes the certificates of a cluster."""

from __future__ import annotations

import argparse
from pathlib import Path

from jflow.base.cluster import ClusterSpec, parse_cluster, read_tf_config
from jflow.errors import NotFoundError

_DAYS = 365
_EPILOG = """\
Writes DIR/ca.crt and ca.key, the authority, and for each task and for clients a file with a private
key and a certificate, such as DIR/worker-1.pem and DIR/client.pem. Copy ca.crt and the file of each
task to its machine, ca.crt and client.pem to those of clients, into a directory of mode 700 that
JFLOW_TLS_DIR names there. Keep ca.key here: it makes the certificate of any task. Run the command
again to renew all certificates, or after adding a task; the authority stays.
"""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command to those of `jflow`."""
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
    init.set_defaults(run=_init)


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
        written = write_certificates(options.directory, cluster, options.days)
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
