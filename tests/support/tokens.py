"""JSON web tokens for a broker's authentication by tokens."""

from __future__ import annotations

import base64
import hmac
import json
from pathlib import Path


def token(role: str, secret: bytes) -> str:
    """A JSON web token as `pulsar tokens create` makes it."""
    head, body = (
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=")
        for part in ({"alg": "HS256"}, {"sub": role})
    )
    signature = hmac.digest(secret, head + b"." + body, "sha256")
    return b".".join((head, body, base64.urlsafe_b64encode(signature).rstrip(b"="))).decode()


def token_conf(secret_file: Path, *superusers: str) -> dict[str, str]:
    """A broker that authenticates by tokens and authorizes."""
    return {
        "authenticationEnabled": "true",
        "authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
        "tokenSecretKey": secret_file.as_uri(),
        "authorizationEnabled": "true",
        "superUserRoles": ",".join(superusers),
    }
