"""The colours of the peers, the same in every plot."""

from __future__ import annotations

COLOURS = {"tidegate": "#0b7285", "in-memory": "#868e96", "bucket": "#e8590c", "bucket, sealed": "#f59f00"}
COLOURS |= {
    "in-memory, strict": "#343a40",
    "bucket, strict": "#a61e4d",
    "before": "#868e96",
    "redis": "#c92a2a",
    "postgresql": "#364fc7",
    "rocksdb": "#2b8a3e",
    "qmq": "#862e9c",
    "wheel-file": "#5c940d",
    "levels": "#e67700",
    "heapq": "#495057",
    "heapdict": "#adb5bd",
}
FALLBACK = ("#5f3dc4", "#2b8a3e", "#a61e4d", "#1864ab", "#495057")


def colour(peer: str) -> str:
    """A peer's colour, the same in every plot."""
    return COLOURS.get(peer) or FALLBACK[sum(map(ord, peer)) % len(FALLBACK)]
