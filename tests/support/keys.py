"""A pair of keys for messages that are encrypted from client to client."""

from __future__ import annotations

import subprocess
from pathlib import Path


def key_pair(folder: Path) -> tuple[Path, Path]:
    """Make a public and a private RSA key in ``folder``, as PEM files."""
    private, public = folder / "private.pem", folder / "public.pem"
    subprocess.run(["openssl", "genrsa", "-out", str(private), "2048"], check=True, capture_output=True)
    subprocess.run(
        ["openssl", "rsa", "-in", str(private), "-pubout", "-out", str(public)],
        check=True,
        capture_output=True,
    )
    return public, private
