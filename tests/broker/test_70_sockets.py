"""Neither the broker nor the daemon can be reached from another machine."""

from __future__ import annotations

import ipaddress

import psutil
import pytest

from tests.support.cluster import Cluster


def listening(pid: int) -> set[tuple[str, int]]:
    """Address and port of every TCP socket on which the process listens."""
    connections = psutil.Process(pid).net_connections(kind="tcp")
    return {(one.laddr.ip, one.laddr.port) for one in connections if one.status == psutil.CONN_LISTEN}


def off_loopback(sockets: set[tuple[str, int]]) -> list[tuple[str, int]]:
    """Those that are not on loopback."""
    found = []
    for host, port in sorted(sockets):
        address = ipaddress.ip_address(host)
        # Java's sockets are IPv6 ones, in which an IPv4 address is a mapped one.
        mapped = getattr(address, "ipv4_mapped", None)
        if not (mapped or address).is_loopback:
            found.append((host, port))
    return found


def test_the_broker_listens_on_loopback_alone(cluster: Cluster) -> None:
    sockets = listening(cluster.broker.pid)
    assert set(vars(cluster.broker.ports).values()) <= {port for _, port in sockets}
    assert off_loopback(sockets) == []


@pytest.mark.tidegate_only
def test_the_daemon_listens_on_loopback_alone(cluster: Cluster) -> None:
    sockets = listening(cluster.daemon.pid)
    assert len(sockets) == 1, "HTTP, and nothing else"
    assert off_loopback(sockets) == []
