"""What the client of a session may do with the state of the cluster, by its rights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from jflow.base.deadline import Deadline
from jflow.base.packing import unpack
from jflow.base.roles import AccessRole
from jflow.errors import AbortedError, InvalidArgumentError, PermissionDeniedError
from jflow.net.protocol import Rights
from jflow.plan import Call, Plan
from jflow.state.checkpoint_files import local_path
from jflow.state.core import ClusterState
from jflow.state.effects import Effect
from jflow.state.moves import StateId, changes_of, states_of
from jflow.state.saves import READ_TENSOR, StateItems
from jflow.task.master.step_runner import RegisteredStep


class SessionRights:
    """The rights of a session's client, which decide on the steps that it registers.

    Args:
      rights: those that it has when the session opens.
      steps: what the session has registered.
      end: ends the session.
    """

    def __init__(
        self,
        rights: Rights,
        steps: Mapping[int, RegisteredStep],
        end: Callable[[AbortedError], None],
    ) -> None:
        self._steps = steps
        self._end = end
        self.now = rights

    @property
    def user(self) -> str:
        """The user whose token the client has; "" for the token of the server."""
        return self.now.user

    def check_step(self, plans: Sequence[Plan]) -> None:
        """Checks that the client may run a step.

        Raises:
          PermissionDeniedError: if it may not.
        """
        if self.now.role >= AccessRole.OPERATE:
            return
        self.now.check_states(sorted(states_of(plans)))
        changed = sorted(state for change in changes_of(plans) for state in change)
        if changed and self.now.role < AccessRole.USE:
            raise self.now.refusal(AccessRole.USE, f"running a step that may change {changed[0]}")
        for path in _paths_of(plans):
            if self.now.role < AccessRole.USE:
                raise self.now.refusal(AccessRole.USE, f"reading the checkpoint {path!r}")
            self.now.check_path(local_path(path))

    def check_recording(self) -> None:
        """Checks that the client may choose the numbers of its steps, so that they are recorded.

        Raises:
          PermissionDeniedError: if it may not.
        """
        if self.now.role < AccessRole.OPERATE:
            raise self.now.refusal(AccessRole.OPERATE, "recording steps")

    @property
    def clients(self) -> str:
        """How the names begin under which tasks know the client's steps that are applied once.

        So no user takes over steps of another one. "" for callers with the token of the cluster.
        """
        return "" if self.now.role == AccessRole.CLUSTER else f"@{self.now.user}/"

    def own_effect(self, effect: Effect | None) -> Effect | None:
        """Returns an attempt of a step that is applied once, as tasks know it; see `clients`.

        Raises:
          PermissionDeniedError: if it is one of a claim, which the client may not make.
        """
        if effect is None or self.now.role == AccessRole.CLUSTER:
            return effect
        if effect.epoch and self.now.role < AccessRole.OPERATE:
            # Tasks remember the epochs of all clients for ever.
            raise self.now.refusal(AccessRole.OPERATE, f"running {effect} under a claim")
        return replace(effect, client=self.clients + effect.client)

    def limit(self, rights: Rights) -> None:
        """See `MasterSession.limit`."""
        self.now = rights
        try:
            for step in self._steps.values():
                self.check_step(step.plans)
        except PermissionDeniedError as error:
            self._end(AbortedError(f"this session has ended: {error.message}"))


class GuardedState(ClusterState):
    """The operations of a session on the state of the cluster, as far as its rights allow them.

    Args:
      rights: those of its client.
      args: as for `ClusterState`.
    """

    def __init__(self, rights: SessionRights, *args: Any) -> None:
        super().__init__(*args)
        self._rights = rights

    async def move(
        self,
        states: Sequence[StateId],
        target: str,
        hold_s: float,
        connect_timeout: float,
        deadline: Deadline,
    ) -> None:
        """See `ClusterState.move`."""
        self._rights.now.check_states(states)
        await super().move(states, target, hold_s, connect_timeout, deadline)

    async def save(
        self,
        prefix: str,
        items: bytes,
        is_consistent: bool,
        about: Mapping[str, str],
        connect_timeout: float,
        deadline: Deadline,
    ) -> bytes:
        """See `ClusterState.save`."""
        items = self._allowed(prefix, items)
        return await super().save(prefix, items, is_consistent, about, connect_timeout, deadline)

    async def restore(
        self, prefix: str, items: bytes, connect_timeout: float, deadline: Deadline
    ) -> bytes:
        """See `ClusterState.restore`."""
        items = self._allowed(prefix, items)
        return await super().restore(prefix, items, connect_timeout, deadline)

    def _allowed(self, prefix: str, items: bytes) -> bytes:
        """Returns the items, without effects of steps of other users.

        Raises PermissionDeniedError if the client may not use the path or the state.
        """
        rights = self._rights.now
        if rights.role >= AccessRole.OPERATE:
            return items
        rights.check_path(local_path(prefix))
        wanted = StateItems.from_bytes(items)
        rights.check_states(item.state for item in wanted.items)
        return msgspec.structs.replace(wanted, clients=self._rights.clients).to_bytes()


def _paths_of(plans: Iterable[Plan]) -> Iterable[str]:
    """Yields the paths of the checkpoints that plans read.

    Raises:
      InvalidArgumentError: if a plan does not say which.
    """
    for plan in plans:
        for one in plan.all_instructions:
            if isinstance(one, Call) and one.function == READ_TENSOR:
                attributes = unpack(one.attributes)
                path = attributes.get("prefix") if isinstance(attributes, dict) else None
                if not isinstance(path, str):
                    raise InvalidArgumentError(
                        f"`{one}` reads a checkpoint; expected its path as `prefix`, got {path!r}",
                        op=one.op or None,
                    )
                yield path
