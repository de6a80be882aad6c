"""Small files named by a user: an endless one must not fill the memory."""

from __future__ import annotations

from pathlib import Path

TOKEN_MAX_BYTES = 1 << 16


def read_text(path: Path, max_bytes: int) -> str:
    """The content of ``path``. Raises OSError, and ValueError if it is too long or not UTF-8."""
    with path.open("rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise ValueError(f"it is longer than {max_bytes:,} bytes")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("it is no text") from None  # the codec's message quotes a byte, perhaps of a token
