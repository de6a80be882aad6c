"""Credentials: the token and the certificates, read when used and never shown.

Invariants: a secret comes from a file or from the environment, never from a command line or an option; each
connection reads it anew, so that a renewal takes effect; ``repr`` shows paths only.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from pathlib import Path

from tidegate.pipeline.errors import OptionError
from tidegate.plugin.shared.small_file import TOKEN_MAX_BYTES, read_text

TOKEN_VARIABLE = "TIDEGATE_PULSAR_TOKEN"  # noqa: S105 the name of a variable


def check_no_password(what: str, url: str) -> None:
    """Raise ``OptionError`` if a Pulsar URL contains a name and a password."""
    if "@" in url.partition("://")[2].partition("/")[0]:
        # The value is not repeated: it would end up in a log.
        raise OptionError(f"{what} has no name and password in it: put a token into a file, give token_file")


@dataclass(frozen=True)
class Access:
    """Paths of files; None where there is none.

    token_file: for broker and admin API; without it the variable ``TIDEGATE_PULSAR_TOKEN``. tls_ca_file:
    trusted certificates, instead of the system's. tls_cert_file, tls_key_file: the client's own, for mutual
    TLS.
    """

    token_file: str | None = None
    tls_ca_file: str | None = None
    tls_cert_file: str | None = None
    tls_key_file: str | None = None

    def __post_init__(self) -> None:
        if self.tls_key_file is not None and self.tls_cert_file is None:
            raise OptionError("tls_key_file goes with tls_cert_file: give both")

    def token(self) -> str | None:
        """The token, None if there is none. Raises ``OptionError``."""
        if self.token_file is None:
            return os.environ.get(TOKEN_VARIABLE) or None
        path = located(self.token_file)
        try:
            token = read_text(path, TOKEN_MAX_BYTES).strip()
        except (OSError, ValueError) as error:
            raise OptionError(f"cannot read the token in {path}: {_reason(error)}") from error
        if not token or not token.isascii() or not token.isprintable():
            raise OptionError(f"there is no token in {path}: one line is expected")
        return token

    def tls(self) -> ssl.SSLContext:
        """A context that verifies the other side. Raises ``OptionError``."""
        try:
            context = ssl.create_default_context(
                cafile=None if self.tls_ca_file is None else str(located(self.tls_ca_file))
            )
            if self.tls_cert_file is not None:
                key = None if self.tls_key_file is None else str(located(self.tls_key_file))
                context.load_cert_chain(str(located(self.tls_cert_file)), key)
        except (OSError, ssl.SSLError) as error:
            raise OptionError(f"cannot use the TLS files given: {_reason(error)}") from error
        return context


def located(name: str) -> Path:
    """The path of a file: its own, or that of the copy that ``--files`` ships to Spark's workers."""
    path = Path(name)
    if path.exists():
        return path
    try:
        from pyspark import SparkFiles  # noqa: PLC0415 only where Spark is

        shipped = Path(SparkFiles.get(path.name))
    except Exception:  # no Spark here, or no shipped file: the error names the original path
        return path
    return shipped if shipped.exists() else path


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)
