"""The reasons why the daemon is not ready, in words: the state behind ``/readyz``.

Invariants: ready means no reason. A reason's setter removes it by its name; a reason is one line, whatever
text an error or a client has put into it.
"""

from __future__ import annotations

from tidegate.plugin.shared.shown import one_line


class Health:
    """The reasons, by name, for which the daemon is not ready."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {"starting": "the daemon is starting, wait for it"}

    @property
    def ready(self) -> bool:
        """True without a reason."""
        return not self._reasons

    def reasons(self) -> list[str]:
        """The reasons, one sentence each."""
        return list(self._reasons.values())

    def block(self, name: str, reason: str) -> None:
        """Let ``reason`` stand, so not ready, until ``clear(name)``."""
        self._reasons[name] = one_line(reason)

    def clear(self, name: str) -> None:
        """Remove the reason ``name``."""
        self._reasons.pop(name, None)
