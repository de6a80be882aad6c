"""Random conf files: pieces that meet every rule of the format, among them the keys that are set."""

from __future__ import annotations

from hypothesis import strategies as st

TRACKER = "delayedDeliveryTrackerFactoryClassName"
PIECES = [
    "a", "b ", "=", ":", " ", "\t", "\f", "\\", "\\\\", "\n", "\r", "\r\n", "#", "!", "\\n", "\\u0041",
    "acks", "acks=", "acks=1000", "\nacks = 7", "\nacks", TRACKER, f"\n{TRACKER}=x",
    f"\n  {TRACKER} : y \\\n z", "\ntidegateSocket=", "é", "\x0b", "\x85", "\u2028", "\udcff",
]  # fmt: skip
texts = st.lists(st.sampled_from(PIECES), max_size=25).map("".join)
