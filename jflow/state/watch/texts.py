"""What people read of a step: which client it is of, and since when it is abandoned."""

from __future__ import annotations

from jflow.base.text import age_text
from jflow.state.quotas import ChargedSession
from jflow.state.watch.records import StepStatus


def client_text(step: StepStatus) -> str:
    """Names the client of a step: its session, whose token it has, and what it has claimed."""
    claim = f" that has claimed {step.claim!r}" if step.claim else ""
    return f"{ChargedSession(step.master, step.session, step.user)}{claim}"


def abandoned_text(seconds: float) -> str:
    """Says that a program still runs, though its step was abandoned so many seconds ago."""
    return f"computes, abandoned {age_text(seconds)} ago"


def busy_text(step: StepStatus) -> str:
    """Says since when an abandoned step keeps a device busy, and which client's it is."""
    return (
        f"busy for {age_text(step.age_s)} with step {step.step} of {client_text(step)}, "
        f"abandoned {age_text(step.abandoned_s or 0.0)} ago"
    )
