"""The daemons beside the brokers of this machine's stands: their settings, and looks at them over HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import httpx

from tidegate.plugin.errors import UserError
from tidegate.plugin.local.daemon import Daemon

_USABLE_TIMEOUT_S = 180.0
_POLL_S = 0.02
# So small that a few thousand messages pass through several slices, on disk and in memory.
DAEMON_SETTINGS = {"slice_width_ms": "5000", "staging_bytes": "65536", "heartbeat_ms": "1000"}


def status_of(daemon: Daemon) -> dict[str, Any] | None:
    """The daemon's own status; None if it does not answer."""
    try:
        answer = httpx.get(f"{daemon.url}/status", timeout=2.0, trust_env=False)
        found: dict[str, Any] | None = answer.json() if answer.is_success else None
    except (httpx.HTTPError, ValueError):
        return None
    return found


def wait_for_broker(
    daemon: Daemon, pause: Callable[[float], None], monotonic_s: Callable[[], float] = time.monotonic
) -> None:
    """Return when a broker is connected to the daemon. Raises ``UserError``."""
    deadline_s = monotonic_s() + _USABLE_TIMEOUT_S
    with httpx.Client(base_url=daemon.url, timeout=2.0, trust_env=False) as client:
        while monotonic_s() < deadline_s:
            try:
                answer = client.get("/status")
                if answer.is_success and answer.json()["brokers"]:
                    return
            except (httpx.HTTPError, ValueError, KeyError):
                pass
            pause(_POLL_S)
    raise UserError(
        f"no broker was connected to the daemon within {_USABLE_TIMEOUT_S:.0f} s; see {daemon.log_path}"
    )
