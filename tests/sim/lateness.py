"""How late a message may be sent the first time, where nothing has gone wrong.

On purpose generous: what is met is a message that nobody would have sent before something else came along,
and not one that a slow machine has kept. The bound grows with how many messages there are and with every
latency that a history has chosen. It says nothing while something is wrong (`Kernel.disturb`), nor of a
subscription that has no stream, no free permit, or whose consumers have just come. Each step of a history
is a disturbance, and so is each death of a process and each write that a disk refuses.
"""

from __future__ import annotations

from dataclasses import dataclass

FOREVER_NS = 1 << 62


@dataclass(frozen=True, slots=True)
class Patience:
    """`base_ns`: for any message; `message_ns`: and for each that is in the topic; `behind`: with more of
    them than this, one may wait for credit that another one holds, for `held_ns`."""

    base_ns: int = FOREVER_NS
    message_ns: int = 0
    behind: int = 0
    held_ns: int = 0

    def allows_ns(self, messages: int) -> int:
        """How late one of so many messages may be."""
        held_ns = self.held_ns if messages > self.behind else 0
        return self.base_ns + messages * self.message_ns + held_ns
