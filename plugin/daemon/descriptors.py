"""The daemon's limit of descriptors, and each part's share.

Invariant: whatever clients open together leaves enough to the store; HTTP, open to every user of the machine,
takes nothing from the brokers.
"""

from __future__ import annotations

import resource

from tidegate.plugin.errors import StartError

BROKERS_MAX = 64
OTHERS_MAX = 64  # connections of the socket that are no brokers, or have not yet said so
HTTP_MAX = 64
_PER_CONNECTION = 2  # of the socket: the transport's, and one for reading the rest after that is closed
_STORE = 576  # open in RocksDB: tables (512), logs and locks
_OWN = 96  # Python's, the listening sockets, connections of this turn of the loop about to be aborted
NEEDED = _STORE + _OWN + HTTP_MAX + _PER_CONNECTION * (BROKERS_MAX + OTHERS_MAX)


def raise_limit() -> None:
    """Raise this process's limit of open files as far as allowed. Raises ``StartError`` if it is too low."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            hard = soft  # a hard limit above the kernel's maximum
    if hard != resource.RLIM_INFINITY and hard < NEEDED:
        raise StartError(
            f"at most {hard} files may be open and the daemon needs {NEEDED}: "
            f"raise the limit, as with ulimit -n {NEEDED} or LimitNOFILE={NEEDED} of systemd"
        )
