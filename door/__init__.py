"""Tidegate, delayed delivery for Apache Pulsar: here is the client for programs (``docs/waiting.md``).

Its modules load at the first use, because every command passes through here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidegate.plugin.client.calls import RefusedError
    from tidegate.plugin.client.client import AsyncClient, Client
    from tidegate.plugin.client.messages import (
        Bucket,
        Changed,
        MessageState,
        Pace,
        SubscriptionPace,
        Tide,
        WaitingMessage,
    )
    from tidegate.plugin.errors import DaemonAwayError, NotNowError, TidegateError, UnknownNameError

__all__ = [
    "AsyncClient",
    "Bucket",
    "Changed",
    "Client",
    "DaemonAwayError",
    "MessageState",
    "NotNowError",
    "Pace",
    "RefusedError",
    "SubscriptionPace",
    "Tide",
    "TidegateError",
    "UnknownNameError",
    "WaitingMessage",
]
_MODULES = {
    "AsyncClient": "client.client",
    "Bucket": "client.messages",
    "Changed": "client.messages",
    "Client": "client.client",
    "DaemonAwayError": "errors",
    "MessageState": "client.messages",
    "NotNowError": "errors",
    "Pace": "client.messages",
    "RefusedError": "client.calls",
    "SubscriptionPace": "client.messages",
    "Tide": "client.messages",
    "TidegateError": "errors",
    "UnknownNameError": "errors",
    "WaitingMessage": "client.messages",
}


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib  # noqa: PLC0415

    return getattr(importlib.import_module(f"tidegate.plugin.{module}"), name)
