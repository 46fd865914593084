"""Targets: where a server is reached, and what is known of it."""

import pytest

from jflow.base.cluster import Target, Task


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("grpc://a:80", Target("a:80")),
        ("a", Target("a:2222")),
        ("a:80?", Target("a:80")),
        ("grpc://[::1]:80", Target("[::1]:80")),
        ("grpc://a:80?task=/job:ps/task:1", Target("a:80", task=Task("ps", 1))),
        ("grpc://a:80?cluster=lab%201", Target("a:80", "lab 1")),
        (
            "grpc://localhost:9000?at=ps0:2222&cluster=x&task=/job:ps/task:0",
            Target("localhost:9000", "x", Task("ps", 0), at="ps0:2222"),
        ),
        ("grpc://a?cluster=", Target("a:2222")),
    ],
)
def test_a_target_says_where_a_server_is_and_what_is_known_of_it(text, target):
    assert Target.parse(text) == target


def test_the_address_of_a_server_behind_a_tunnel_is_not_the_one_that_is_called():
    assert Target("a:1").own_address == "a:1"
    assert Target("a:1", at="b:2").own_address == "b:2"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("grpc://", "no host"),
        ("grpc://a:80?task", "malformed"),
        ("grpc://a:80?task=ps", "ps"),
        ("grpc://a:80?task=/job:ps", "an index"),
        ("grpc://a:80?incarnation=1", "cluster, task, at at most once"),
        ("grpc://a:80?cluster=x&cluster=y", "at most once"),
        ("grpc://a:80?at=", "address is empty"),
        ("grpc://a:80?cluster=caf%C3%A9", "printable ASCII"),
        ("grpc://a:80?cluster=" + "x" * 129, "at most 128"),
        ("unix:2222", "gRPC's scheme 'unix', .* expected 'host:port'"),
        ("grpc://unix:/run/one", "gRPC's scheme 'unix'"),
        ("unix-abstract:one", "gRPC's scheme 'unix-abstract'"),
        ("VSOCK:2:80", "gRPC's scheme 'VSOCK'"),
        ("xds:a", "gRPC's scheme 'xds'"),
        ("a:80?at=xds:80", "gRPC's scheme 'xds'"),
        ("unix:///run/one", "must begin with 'grpc://'"),
    ],
)
def test_a_malformed_target_is_an_error_that_says_what_is_wrong(text, words):
    with pytest.raises(ValueError, match=words):
        Target.parse(text)
