"""What finds do with the broker of `lib/standalone`: topics, its REST interface, and what a consumer gets."""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.request
from typing import Any

import pulsar

SHARED = pulsar.ConsumerType.Shared


def connect() -> pulsar.Client:
    """A client that logs errors only."""
    return pulsar.Client(os.environ["SERVICE_URL"], logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


def new_topic() -> str:
    """A name that is not taken."""
    return f"persistent://public/default/find-{time.time_ns()}"


def path(topic: str) -> str:
    """Of a topic in the REST interface."""
    return topic.replace("://", "/")


def rest(method: str, where: str, body: Any = None) -> Any:
    """The answer of the REST interface, below /admin/v2/ unless ``where`` begins with a slash."""
    url = os.environ["ADMIN_URL"] + (where if where.startswith("/") else f"/admin/v2/{where}")
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)  # noqa: S310
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        text = answer.read()
    return json.loads(text) if text else None


def rest_until(method: str, where: str, body: Any = None, seconds: float = 60.0) -> Any:
    """The same, tried again until it works: topics are away for a moment while they are unloaded."""
    end_s = time.monotonic() + seconds
    while True:
        try:
            return rest(method, where, body)
        except urllib.error.HTTPError:
            if time.monotonic() > end_s:
                raise
            time.sleep(0.5)


def received(consumer: pulsar.Consumer, within_s: float, count: int = 1 << 30) -> list[tuple[str, int]]:
    """(payload, when it came in ms since 1970) of what comes within that time, at most ``count``."""
    found: list[tuple[str, int]] = []
    end_s = time.monotonic() + within_s
    while len(found) < count and (left_s := end_s - time.monotonic()) > 0:
        try:
            message = consumer.receive(timeout_millis=max(1, int(left_s * 1000)))
        except pulsar.Timeout:
            break
        found.append((message.data().decode(), time.time_ns() // 1_000_000))
        consumer.acknowledge(message)
    return found
