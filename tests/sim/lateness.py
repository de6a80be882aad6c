"""How late a message may be sent the first time, without a disturbance.

Generous on purpose: it finds messages that would never have been sent without another event, not those
delayed by a slow machine. The bound grows with the number of messages and with a history's latencies. It does
not apply during a disturbance (`Kernel.disturb`), nor to a subscription without a stream, without a free
permit, or with fresh consumers. Each step of a history is a disturbance, as is each death of a process and
each write refused by a disk.
"""

from __future__ import annotations

from dataclasses import dataclass

FOREVER_NS = 1 << 62


@dataclass(frozen=True, slots=True)
class Patience:
    """`base_ns`: for any message; `message_ns`: and for each in the topic; `behind`: with more of them, one
    may wait for credit held by another, for `held_ns`.
    """

    base_ns: int = FOREVER_NS
    message_ns: int = 0
    behind: int = 0
    held_ns: int = 0

    def allows_ns(self, messages: int) -> int:
        """How late one of so many messages may be."""
        held_ns = self.held_ns if messages > self.behind else 0
        return self.base_ns + messages * self.message_ns + held_ns
