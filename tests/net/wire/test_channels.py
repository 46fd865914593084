"""The gRPC settings that both ends must agree on; see docs/decisions/foundations.md#0001."""

import os

import grpc
import pytest

from jflow.net.protocol.frame import MAX_FRAME_BYTES
from jflow.net.wire import grpc_channels
from jflow.net.wire.tls import Tls

CHANNEL, SERVER = dict(grpc_channels.channel_options()), dict(grpc_channels.server_options())


@pytest.mark.parametrize(
    "option",
    [
        "grpc.keepalive_time_ms",
        "grpc.keepalive_timeout_ms",
        "grpc.http2.ping_timeout_ms",
        "grpc.keepalive_permit_without_calls",
        "grpc.http2.max_pings_without_data",
        "grpc.max_receive_message_length",
        "grpc.max_send_message_length",
    ],
)
def test_both_ends_have_the_same_value(option):
    assert CHANNEL[option] == SERVER[option]


def test_no_option_is_given_twice():
    assert len(CHANNEL) == len(grpc_channels.channel_options())
    assert len(SERVER) == len(grpc_channels.server_options())


def test_a_second_server_cannot_share_a_port():
    assert SERVER["grpc.so_reuseport"] == 0


def test_a_server_takes_the_pings_that_a_client_sends():
    ping_ms = CHANNEL["grpc.keepalive_time_ms"]
    assert SERVER["grpc.http2.min_recv_ping_interval_without_data_ms"] < ping_ms
    assert CHANNEL["grpc.keepalive_permit_without_calls"] == 1
    assert CHANNEL["grpc.http2.max_pings_without_data"] == 0


def test_a_dead_peer_is_found_within_15_seconds():
    for options in (CHANNEL, SERVER):
        silent_ms = options["grpc.keepalive_time_ms"]
        assert silent_ms + options["grpc.keepalive_timeout_ms"] <= 15_000
        assert silent_ms + options["grpc.http2.ping_timeout_ms"] <= 15_000


@pytest.mark.parametrize("seconds", ["1.5", "3", "600"])
def test_the_time_after_which_a_peer_is_lost_is_an_environment_variable(monkeypatch, seconds):
    monkeypatch.setenv("JFLOW_LIVENESS_S", seconds)
    for found in (grpc_channels.channel_options(), grpc_channels.server_options()):
        options = dict(found)
        lost_ms = options["grpc.keepalive_time_ms"] + options["grpc.keepalive_timeout_ms"]
        assert lost_ms == pytest.approx(float(seconds) * 1000, rel=0.01)
        least = SERVER["grpc.http2.min_recv_ping_interval_without_data_ms"]
        assert least < options["grpc.keepalive_time_ms"], "any server takes its pings"


def test_a_server_that_is_back_is_found_within_about_a_second():
    assert CHANNEL["grpc.max_reconnect_backoff_ms"] <= 1_000


def test_a_server_that_is_slow_to_answer_is_given_time():
    """The option's name does not say it: this is also how long one attempt to connect may take.

    With less, a server that is busy, or far away, is hung up on again and again (0.1 s: never
    reached where the handshake takes 1.3 s; measured). Refused attempts are repeated as fast.
    """
    assert CHANNEL["grpc.min_reconnect_backoff_ms"] >= 5_000


def test_the_largest_frame_is_allowed():
    assert CHANNEL["grpc.max_receive_message_length"] == MAX_FRAME_BYTES


def test_a_proxy_of_the_environment_is_never_used():
    assert CHANNEL["grpc.enable_http_proxy"] == 0


@pytest.mark.parametrize("name", ["localhost", "Localhost", "127.0.0.1"])
def test_localhost_is_dialled_where_servers_listen_and_nowhere_else(monkeypatch, name):
    """gRPC would try ::1 first, where another user may listen at the same port."""
    dialled = []
    for module in (grpc, grpc.aio):
        for kind in ("insecure_channel", "secure_channel"):
            monkeypatch.setattr(module, kind, lambda address, *_, **__: dialled.append(address))
    monkeypatch.setattr(Tls, "channel_credentials", lambda _: None)
    for make in (grpc_channels.client_channel, grpc_channels.aio_channel):
        for tls in (None, Tls(b"", b"", "", "")):
            make(f"{name}:80", tls)
    assert dialled == ["dns:///127.0.0.1:80"] * 4


@pytest.mark.parametrize(
    ("address", "uri"),
    [
        ("ipv4:80", "dns:///ipv4:80"),
        ("dns:80", "dns:///dns:80"),
        ("[::1]:80", "dns:///[::1]:80"),
        ("[fe80::1%lo]:80", "dns:///[fe80::1%25lo]:80"),
        ("b\u00fccher:80", "dns:///b%C3%BCcher:80"),
        ("a%2Fb:80", "dns:///a%252Fb:80"),
        ("a?b:80", "dns:///a%3Fb:80"),
        ("a#b:80", "dns:///a%23b:80"),
    ],
)
def test_no_part_of_an_address_is_anything_but_host_and_port_to_grpc(monkeypatch, address, uri):
    dialled = []
    monkeypatch.setattr(grpc, "insecure_channel", lambda address, **_: dialled.append(address))
    grpc_channels.client_channel(address)
    assert dialled == [uri]


def test_grpc_resolves_names_as_servers_do():
    assert os.environ["GRPC_DNS_RESOLVER"] == "native"
