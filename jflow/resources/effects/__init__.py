"""The ledger of a task in checkpoints. It is of no user, so nothing makes one by name."""

from typing import NoReturn

from jflow.errors import InvalidArgumentError
from jflow.records.allowed_directories import AllowedDirectories
from jflow.resources.effects.snapshot import LedgerSnapshot as LedgerSnapshot
from jflow.resources.effects.snapshot import LedgerSpec as LedgerSpec
from jflow.resources.kind import Kind


def _make(spec: LedgerSpec, name: str, _: AllowedDirectories) -> NoReturn:
    raise InvalidArgumentError(f"a step cannot use the {spec.what} {name!r} of a task")


EFFECTS = Kind("effects", LedgerSpec, _make, LedgerSnapshot, {})
