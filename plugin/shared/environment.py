"""Environment variables other than the daemon's settings: the default socket, and misspelt names.

Invariants: the default socket does not depend on the current directory, so daemon and clients agree, and no
other user can write to its directory; a near miss of one of our variables is refused, not ignored.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from tidegate.plugin.errors import ConfigError, UserError

PREFIX = "TIDEGATE_"
SOCKET_DEFAULT_HELP = "$XDG_RUNTIME_DIR/tidegate/tidegate.sock, without that /run/tidegate/tidegate.sock"
SETTINGS = (
    "audit_bytes",
    "commit_entries",
    "commit_interval_ms",
    "credit_max",
    "data",
    "forget_days",
    "heartbeat_ms",
    "http",
    "http_hosts",
    "http_token_file",
    "log_format",
    "log_level",
    "maintain_interval_ms",
    "metrics_subscriptions",
    "otlp",
    "otlp_endpoint",
    "otlp_interval_ms",
    "prefetch_ms",
    "quarantine_bytes",
    "shutdown_seconds",
    "slice_width_auto",
    "slice_width_ms",
    "socket",
    "staging_bytes",
    "staging_bytes_max",
    "storage_retry_ms",
    "write_buffer_bytes",
)
"""The names of the daemon's settings: here so that a command need not load all their checks."""
_OTHERS = (
    "TIDEGATE_ADMIN_URL",
    "TIDEGATE_CACHE_DIR",
    "TIDEGATE_PULSAR",
    "TIDEGATE_PULSAR_TOKEN",
    "TIDEGATE_TOKEN",
    "TIDEGATE_TOKEN_FILE",
)
_OF_TESTS = ("TIDEGATE_TEST_", "TIDEGATE_BENCH_")
_RUNTIME = Path("/run")
_NEAR = 0.75


def default_socket(environment: Mapping[str, str], uid: int) -> Path:
    """The default socket of the daemon of user ``uid``.

    It is in the user's own runtime directory if there is one, else in that of a service.
    """
    runtime = environment.get("XDG_RUNTIME_DIR", "")
    base = Path(runtime) if uid != 0 and _is_private(runtime, uid) else _RUNTIME
    return base / "tidegate" / "tidegate.sock"


def own_default_socket() -> Path:
    """The default socket of this process."""
    return default_socket(os.environ, os.geteuid())


def _is_private(directory: str, uid: int) -> bool:
    # sudo and su may leave the variable of the calling user.
    if not directory.startswith("/"):
        return False
    try:
        status = os.stat(directory)  # noqa: PTH116 even for a name that cannot be a path
    except (OSError, ValueError):
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == uid and not status.st_mode & 0o077


def require_linux(platform: str) -> None:
    """Raise ``UserError`` unless ``platform`` (as ``sys.platform``) is Linux."""
    if platform != "linux":
        name = {"darwin": "macOS", "win32": "Windows", "cygwin": "Windows"}.get(platform, platform)
        raise UserError(
            f"Tidegate runs on Linux only, and this is {name}: "
            "use a Linux machine, a virtual one or a container"
        )


def refuse_misspelt(environment: Mapping[str, str]) -> None:
    """Raise ``ConfigError`` for a variable that is nearly one of ours."""
    for name in unknown(environment):
        near = _nearest(name)
        if near is not None:
            raise ConfigError(f"{name} in the environment is not known: is it {near}?")


def unknown(environment: Mapping[str, str]) -> list[str]:
    """The variables that begin like ours but are unknown, sorted."""
    known = {*_OTHERS, *(PREFIX + name.upper() for name in SETTINGS)}
    return sorted(
        name
        for name, value in environment.items()
        if value
        and name.upper().startswith(PREFIX)
        and name.upper() not in known
        and not name.upper().startswith(_OF_TESTS)
        and not _is_service_link(name)
    )


def _is_service_link(name: str) -> bool:
    """True if Kubernetes sets it in every pod beside a service called ``tidegate``."""
    return "_SERVICE_" in name or "_PORT_" in name or name == "TIDEGATE_PORT"


def _nearest(name: str) -> str | None:
    import difflib  # noqa: PLC0415 hardly ever needed

    known = [*_OTHERS, *(PREFIX + one.upper() for one in SETTINGS)]
    # Without the common prefix, which would make every pair similar.
    shorts = {one.removeprefix(PREFIX): one for one in known}
    short = name.upper().removeprefix(PREFIX)
    found = difflib.get_close_matches(short, shorts, 1, _NEAR)
    longer = [one for one in shorts if short.startswith(f"{one}_")]  # as in DATA_DIR
    return shorts[found[0]] if found else shorts[max(longer, key=len)] if longer else None
