"""Stands of drills on a cluster of one's own."""

from __future__ import annotations

import time
from pathlib import Path

from tidegate.plugin.drill.stands.own import Own, OwnStand

TOPIC = "persistent://public/default/test"


def own(
    tmp_path: Path, *, admin_url: str | None = "http://127.0.0.1:1", on_kill: str | None = None
) -> OwnStand:
    return OwnStand(Own("pulsar://127.0.0.1:1", admin_url, TOPIC, on_kill), tmp_path, pause=time.sleep)
