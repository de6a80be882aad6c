"""The descriptors that the daemon may open, and who may have how many of them.

Invariant: all that clients can open together leaves the store what it needs, and HTTP, which every user of
the machine can reach, takes nothing from the brokers.
"""

from __future__ import annotations

import resource

from tidegate.plugin.errors import StartError

BROKERS_MAX = 64
OTHERS_MAX = 64  # connections of the socket that are no brokers, or have not said yet what they are
HTTP_MAX = 64
_PER_CONNECTION = 2  # of the socket: the transport's, and one to read what is left when that is gone
_STORE = 576  # what RocksDB keeps open of tables (512), its logs and locks
_OWN = (
    96  # Python's, the listening sockets, connections of this turn of the loop that are about to be cut off
)
NEEDED = _STORE + _OWN + HTTP_MAX + _PER_CONNECTION * (BROKERS_MAX + OTHERS_MAX)


def raise_limit() -> None:
    """Let this process open as many files as it may. Raises ``StartError`` if those are not enough."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            hard = soft  # a hard limit above what the kernel gives to anybody
    if hard != resource.RLIM_INFINITY and hard < NEEDED:
        raise StartError(
            f"at most {hard} files may be open and the daemon needs {NEEDED}: "
            f"raise the limit, as with ulimit -n {NEEDED} or LimitNOFILE={NEEDED} of systemd"
        )
