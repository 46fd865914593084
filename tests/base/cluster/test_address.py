"""Addresses as users write them."""

import pytest

from jflow.base.cluster import join_address, numeric_host, split_address


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("a.example.com:80", ("a.example.com", 80)),
        ("a:0", ("a", 0)),
        ("a", ("a", 2222)),
        ("grpc://a:80", ("a", 80)),
        ("grpc://a", ("a", 2222)),
        ("[::1]:80", ("::1", 80)),
        ("[::1]", ("::1", 2222)),
        ("[fe80::1%eth0]:80", ("fe80::1%eth0", 80)),
        ("127.0.0.1", ("127.0.0.1", 2222)),
    ],
)
def test_an_address_without_a_port_means_port_2222(address, parts):
    assert split_address(address) == parts
    assert split_address(join_address(*parts)) == parts


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("", "the address is empty"),
        ("grpc://", "has no host"),
        (":80", "has no host"),
        ("host:port", "the port .* is 'port', which is not a number from 0 to 65535"),
        ("a:", "is ''"),
        ("a:-1", "is '-1'"),
        ("a:65536", "is '65536'"),
        ("a:\u0663", "not a number"),
        ("::1", r"square brackets, as in '\[::1\]:2222'"),
        ("fd00::1:80", "square brackets"),
        ("a:80:90", "square brackets"),
        ("[]:80", "not an IPv6 address"),
        ("[a]:80", "not an IPv6 address"),
        ("[::1", "square brackets"),
        ("http://a:80", "'grpc://' or have no scheme"),
        ("a b:80", "has no host"),
    ],
)
def test_a_malformed_address_is_an_error_that_quotes_it_and_says_what_is_wrong(address, words):
    with pytest.raises(ValueError, match=words) as raised:
        split_address(address)
    assert not address or repr(address) in str(raised.value)


@pytest.mark.parametrize(
    ("host", "number"),
    [
        ("localhost", "127.0.0.1"),
        ("LOCALHOST", "127.0.0.1"),
        ("::1", "::1"),
        ("localhost.example.com", "localhost.example.com"),
    ],
)
def test_localhost_is_one_address_for_all(host, number):
    assert numeric_host(host) == number
