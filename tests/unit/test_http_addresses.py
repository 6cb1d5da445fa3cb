"""Which addresses an http job may reach."""

from __future__ import annotations

import pytest

from scheduler.services.executors.http import is_allowed


@pytest.mark.parametrize("address", ["93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "8.8.8.8"])
def test_public_addresses_are_allowed(address: str) -> None:
    assert is_allowed(address)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.0.0.1",
        "172.16.5.4",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "255.255.255.255",
        "224.0.0.1",
        "240.0.0.1",
        "192.0.0.8",
        "198.18.0.1",
        "::1",
        "::",
        "fe80::1%eth0",
        "fc00::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "2002:7f00:1::",
        "2001:db8::1",
    ],
)
def test_private_and_special_addresses_are_refused(address: str) -> None:
    assert not is_allowed(address)


def test_a_network_that_is_named_is_allowed_and_nothing_beside_it() -> None:
    allowed = ["internal.test", "10.1.0.0/16", "fd00::/8"]
    assert is_allowed("10.1.2.3", allowed) and is_allowed("fd12::1", allowed)
    assert not is_allowed("10.2.0.1", allowed) and not is_allowed("127.0.0.1", allowed)
