"""The page of ``GET /``: one file, with a policy that lets it load and run only itself.

Invariants: the policy names the page's style and script by hash, so markup in a client's name has no effect;
the page holds no data and needs no token, its requests do.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from importlib.resources import files
from typing import NamedTuple

_INLINE = re.compile(rb"<(style|script)>(.*?)</\1>", re.DOTALL)


class Page(NamedTuple):
    """The page and its headers."""

    body: bytes
    headers: dict[str, str]


@functools.cache
def page() -> Page:
    """The page, read once."""
    body = files("tidegate.plugin.telemetry").joinpath("page.html").read_bytes()
    hashes = {name: _source(text) for name, text in _INLINE.findall(body)}
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {hashes[b'script']}",
            f"style-src {hashes[b'style']}",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )
    headers = {
        "Content-Type": "text/html; charset=utf-8",
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }
    return Page(body, headers)


def _source(text: bytes) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode('ascii')}'"
