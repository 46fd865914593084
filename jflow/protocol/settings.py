"""How long the two ends of a stream wait for each other, whatever carries their frames."""

GRACE_S = 1.0
"""How long to wait for the reply to a call that was cancelled, in seconds."""

NOTICE_AFTER_S = 10.0
"""After how long a connection attempt that still waits is logged, in seconds."""

RECONNECT_TIMEOUT_S = 2.0
"""How long to try to reach a task that was lost, in seconds."""
