"""gRPC settings that both ends of every connection share.

With other values, or with some of them missing, a second server takes a port that is in use without
a word, a dead peer goes unnoticed for a minute, or a restarted one is found again after six
seconds (docs/decisions/0001-foundations.md has the measurements).
"""

from __future__ import annotations

from jflow.wire.frame import MAX_FRAME_BYTES

SESSION_METHOD = "/jflow.v1.Master/Session"
PEER_METHOD = "/jflow.v1.Worker/Peer"

GRACE_S = 1.0
"""How long to wait for the reply to a call that was cancelled, in seconds."""

KEEPALIVE_TIME_MS = 10_000
KEEPALIVE_TIMEOUT_MS = 5_000

_BOTH = [
    ("grpc.keepalive_time_ms", KEEPALIVE_TIME_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    # Without this one a stopped peer is found after the kernel's minute, whatever the others say.
    ("grpc.http2.ping_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", MAX_FRAME_BYTES),
    ("grpc.max_send_message_length", MAX_FRAME_BYTES),
]

CHANNEL_OPTIONS = [
    *_BOTH,
    ("grpc.initial_reconnect_backoff_ms", 100),
    # Its name does not say it: this is also how long one attempt to connect may take. Refused
    # attempts are repeated as fast with it.
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.enable_http_proxy", 0),
    # Sessions to one server must not share a connection that another one's closing could disturb.
    ("grpc.use_local_subchannel_pool", 1),
]

SERVER_OPTIONS = [
    *_BOTH,
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_TIME_MS // 2),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", KEEPALIVE_TIME_MS // 2),
]
