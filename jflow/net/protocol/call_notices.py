"""`CallNotices`: logs what the calls of a client wait for, once they have waited long."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from jflow.base.deadline import FOREVER, Deadline
from jflow.base.deadline.notices import LOG, Notices, notice, notice_s
from jflow.base.text import printable
from jflow.errors import OpError
from jflow.net.protocol.pending_calls import Outcome
from jflow.net.protocol.receiver import CallAnswer
from jflow.net.protocol.rpc import CallRequest
from jflow.net.protocol.services import MasterSession
from jflow.net.protocol.signatures import rpc_of
from jflow.state.watch import SessionWait, SessionWaits

Describe = Callable[[SessionWait], str]


_FIND_WAITS = rpc_of(MasterSession.find_waits)


class CallNotices:
    """Logs what long calls of a client wait for, at the ticks of its heartbeat; see `Notices`.

    The server is asked only while a call has waited long, so other calls note nothing.

    Args:
      start: sends a request, whose answer an outcome takes; raises OpError if the session is over.
      server: the server, for messages.

    Attributes:
      describe: describes what a step waits for by the names of its graph.

    Raises:
      InvalidArgumentError: as `notice_s`.
    """

    def __init__(
        self, start: Callable[[CallRequest, Outcome, Deadline], object], server: str
    ) -> None:
        self.describe: Describe = _describe_wait
        self._start = start
        self._server = server
        self._calls: dict[int, float] = {}
        self._doing: dict[int, Callable[[], str]] = {}
        self._requested_at = 0.0
        self._notices: Notices[str] = Notices()
        self._waited = 0.0
        self._first_s = notice_s()

    def add(self, call: int, doing: Callable[[], str]) -> None:
        """Adds a call that is not a step, with its description, which the server does not know."""
        self._doing[call] = doing

    def remove(self, call: int) -> None:
        """Forgets a call."""
        self._doing.pop(call, None)

    def tick(self, pending: Collection[int], at: float) -> None:
        """Asks the server what the calls wait for, if one of them has waited long.

        Args:
          pending: the calls that wait for their replies.
          at: the present time, in seconds.
        """
        calls = self._calls
        self._calls = {call: calls.get(call, at) for call in [*pending]}
        first_s = self._first_s
        waited = max((at - since for since in self._calls.values()), default=0.0)
        if waited >= first_s and at - self._requested_at >= first_s / 2:
            self._requested_at, self._waited = at, waited
            with suppress(OpError):
                self._start(_FIND_WAITS.prepared(), _WaitsReceiver(self._log_waits), FOREVER)

    def _log_waits(self, report: SessionWaits) -> None:
        """Logs the reported waits for which a notice is due."""
        by_name: dict[str, list[SessionWait]] = {}
        for one in report.found:
            by_name.setdefault(one.wait.step or f"for {one.task} {one.wait.cause}", []).append(one)
        ages = {name: max(one.wait.age_s for one in group) for name, group in by_name.items()}
        # What has no age, such as a task that does not answer, is as old as the oldest call.
        waited = {name: age or self._waited for name, age in ages.items()}
        texts = {name: self._text(group) for name, group in by_name.items()}
        for call, doing in [*self._doing.items()]:
            since = self._calls.get(call)
            if since is not None and not report.found:
                waited[f"call {call}"] = self._requested_at - since
                texts[f"call {call}"] = doing()
        for name in self._notices.due(waited, self._first_s):
            LOG.warning("%s", printable(notice(waited[name], f"{texts[name]} ({self._server})")))

    def _text(self, listed: Sequence[SessionWait]) -> str:
        return "; ".join(dict.fromkeys(map(self.describe, listed)))


class _WaitsReceiver(Outcome):
    """Receives the reply to `MasterSession.find_waits` and passes it on.

    Args:
      take: called with the waits.
    """

    def __init__(self, take: Callable[[SessionWaits], object]) -> None:
        super().__init__(lambda _: None)
        self._take = take

    def put(self, answer: CallAnswer) -> None:
        if not isinstance(answer, OpError):
            self._take(_FIND_WAITS.read(*answer))


def _describe_wait(one: SessionWait) -> str:
    """Describes a wait by the names that the tasks know."""
    return described(one, repr)


def described(one: SessionWait, op_text: Callable[[str], str], value: str = "") -> str:
    """Describes what a call waits for.

    Args:
      one: the wait.
      op_text: returns the name of an operation for users.
      value: the name of the value that it waits for, if it is known.
    """
    wait = one.wait
    if wait.edge is not None:
        named = f"for {value!r}" if value else "for a value"
        return f"a step waits on {one.task} {named} from {wait.device}"
    is_step = wait.step or one.handle
    subject = op_text(wait.op) if wait.op else "a step" if is_step else "a call"
    return f"{subject} on {wait.device or one.task} waits {wait.cause}"
