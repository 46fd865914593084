"""Makes the certificates of a cluster: a CA's, one for each task and one for clients.

It needs the package `cryptography`, which nothing else of jflow uses: running with certificates
needs only what gRPC and Python have.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from jflow.base.cluster import CLIENT_NAME, OF_TASKS, ClusterSpec, certified_name, split_address
from jflow.base.files import replace_file
from jflow.base.roles import AccessRole
from jflow.net.wire.private_files import loose_place, read_private
from jflow.net.wire.tls import AUTHORITY_FILE

_AUTHORITY_KEY_FILE = "ca.key"
_AUTHORITY_DAYS = 3650
_CLOCKS = timedelta(hours=1)
"""How far behind the clock of a machine may be."""

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def write_certificates(
    directory: Path, cluster: ClusterSpec, days: int, client_roles: Collection[AccessRole] = ()
) -> list[Path]:
    """Writes the certificates of a cluster; reuses the CA of the directory if there is one.

    Args:
      directory: where to write; created if it does not exist, for its owner only.
      cluster: the tasks and their addresses.
      days: how long the certificates are valid.
      client_roles: for each of them there is a certificate of clients that allows no higher role.

    Returns:
      The files of the tasks and of clients.

    Raises:
      ValueError: if two tasks differ by the case of their job's name only, a host has a name like
        those of tasks, other users may replace files of the directory, or it has one file of an
        authority without the other.
      PermissionDeniedError: if the authority's files are of another user, or others may read the
        key or replace one of them.
      OSError: if a file cannot be read or written.
    """
    names = {CLIENT_NAME: ()} | {
        certified_name(task): _hosts(split_address(cluster.task_address(task.job, task.index))[0])
        for task in cluster.tasks()
    }
    if len(names) <= len(list(cluster.tasks())):
        raise ValueError(
            f"certificates cannot distinguish jobs by the case of their names: {cluster.jobs}"
        )
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    loose = loose_place(directory / _AUTHORITY_KEY_FILE)
    if loose is not None:
        raise ValueError(
            f"other users may replace files in {directory}: {loose}, or make the certificates "
            "elsewhere"
        )
    key, authority = _authority(directory)
    files = [(name.removesuffix(OF_TASKS), name, hosts) for name, hosts in names.items()]
    for role in sorted({*client_roles}):
        files.append((f"client-of-role-{role}", CLIENT_NAME, (f"{role}.{CLIENT_NAME}",)))
    written = []
    for file_name, name, others in files:
        own_key = ec.generate_private_key(ec.SECP256R1())
        certificate = _identity(name, others, own_key, (key, authority), days)
        path = directory / f"{file_name}.pem"
        _write(path, _pem(own_key) + certificate.public_bytes(serialization.Encoding.PEM))
        written.append(path)
    return written


def _hosts(host: str) -> tuple[str, ...]:
    """Returns the host names of a task's certificate, for callers that know its address only."""
    if host.lower().rstrip(".").endswith(OF_TASKS) or "*" in host:
        raise ValueError(
            f"certificates cannot be made for the host {host!r}: names that end in {OF_TASKS} are "
            "those of tasks, and a pattern would stand for other hosts; use another name or the "
            "address"
        )
    return _LOOPBACK if host in _LOOPBACK else (host,)


def _authority(directory: Path) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    """Loads the CA of a directory; makes one if there is none."""
    key_path, path = directory / _AUTHORITY_KEY_FILE, directory / AUTHORITY_FILE
    if key_path.exists() != path.exists():
        existing, missing = (key_path, path) if key_path.exists() else (path, key_path)
        raise ValueError(
            f"{directory} has {existing.name} and no {missing.name}; run the command where both "
            "are, or in an empty directory for a new authority"
        )
    if path.exists():
        private_key = serialization.load_pem_private_key(read_private(key_path), None)
        if not isinstance(private_key, ec.EllipticCurvePrivateKey):
            raise ValueError(f"{key_path} has a key that jflow has not made")
        return private_key, x509.load_pem_x509_certificate(read_private(path, 0o022))
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"jflow authority {secrets.token_hex(4)}")
    certificate = (
        _certificate_builder(key, name, name, _AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    _write(key_path, _pem(key))
    try:
        _write(path, certificate.public_bytes(serialization.Encoding.PEM))
    except OSError:
        key_path.unlink()  # one file without the other would be refused the next time
        raise
    return key, certificate


def _identity(
    name: str,
    others: tuple[str, ...],
    key: ec.EllipticCurvePrivateKey,
    authority: tuple[ec.EllipticCurvePrivateKey, x509.Certificate],
    days: int,
) -> x509.Certificate:
    """Makes the certificate of a task, or of clients, which no server can use.

    `others` are the host names of the task, or the name of the role of clients.
    """
    authority_key, issuer = authority
    uses = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if name != CLIENT_NAME:
        uses.append(ExtendedKeyUsageOID.SERVER_AUTH)
    names = [x509.DNSName(name), *map(_alternative, others)]
    issued_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    return (
        _certificate_builder(key, _name(name), issuer.subject, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(issued_by, critical=False)
        .sign(authority_key, hashes.SHA256())
    )


def _certificate_builder(
    key: ec.EllipticCurvePrivateKey, subject: x509.Name, issuer: x509.Name, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    key_id = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(key_id, critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host.lower())


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    pem: bytes = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return pem


def _write(path: Path, content: bytes) -> None:
    """Atomically replaces a file, which only its owner can read."""
    replace_file(path, content, mode=0o600)
