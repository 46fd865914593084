"""Timeouts and limits of streams that do not depend on the transport."""

GRACE_S = 1.0
"""How long to wait for the reply to a call that was cancelled, in seconds."""

MAX_UNAUTHENTICATED = 64
"""How many streams a server reads at one time that are still in the handshake. Each can make it
keep one frame, of `frame.MAX_FRAME_BYTES`, before that is refused by its size."""

MAX_WAITING = 256
"""How many more may wait for that; if those before are silent, further ones would not be
read within `HELLO_S`. What they send is not read meanwhile, but gRPC takes up to 4 MiB of each
connection."""

READ_S = 1.0
"""How long one of them may take to be read while others wait, in seconds."""

NOTICE_AFTER_S = 10.0
"""How long a connection attempt may wait before that is logged, in seconds."""

REFUSED_S = 0.5
"""How long a task that was lost may refuse connections before it counts as ended, in seconds. One
that is out of reach or stopped refuses nothing, and has `RECONNECT_TIMEOUT_S`."""

HELLO_S = 5.0
"""After how long a server ends a stream that is still in the handshake, or waits for it, and a
connection that does not begin or has no stream, in seconds."""

MAX_CALLS = 65_536
"""How many calls of a stream may wait at one time."""

UNREAD_S = 150.0
"""A caller that takes nothing of what it is sent for once to twice this time is given up, in
seconds. It may be stopped by its user for a while, with answers under way."""
