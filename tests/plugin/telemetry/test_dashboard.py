"""The dashboard as Grafana's own model of it reads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from tests.support.daemons import run
from tidegate.plugin.telemetry.dashboard import UID, dashboard


def lost(ours: Any, theirs: Any, path: str = "") -> list[str]:
    """The places that the model has dropped or changed; it may add defaults."""
    if isinstance(ours, dict):
        if not isinstance(theirs, dict):
            return [path]
        return [one for key in ours for one in lost(ours[key], theirs.get(key, _NOTHING), f"{path}.{key}")]
    if isinstance(ours, list):
        if not isinstance(theirs, list) or len(ours) != len(theirs):
            return [path]
        return [one for at in range(len(ours)) for one in lost(ours[at], theirs[at], f"{path}[{at}]")]
    return [] if ours == theirs else [path]


_NOTHING = object()


def read_back(model: dict[str, Any]) -> dict[str, Any]:
    """By Grafana's model and out of it again."""
    register_default_plugins()
    found: dict[str, Any] = json.loads(JSONEncoder().encode(Dashboard.from_json(model)))
    return found


def test_grafanas_model_knows_every_field() -> None:
    assert lost(dashboard(), read_back(dashboard())) == []


def test_a_field_that_grafana_does_not_know_is_found() -> None:
    model = dashboard()
    model["panels"][1]["gridPosition"] = model["panels"][1].pop("gridPos")
    model["panels"][2]["targets"][0]["legend"] = "x"
    found = lost(model, read_back(model))
    assert found == [".panels[1].gridPosition", ".panels[2].targets[0].legend"]


def test_panels_neither_overlap_nor_leave_the_grid() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]
    numbers = [panel["id"] for panel in dashboard()["panels"]]
    assert len(numbers) == len(set(numbers))


def test_the_command_prints_it(tmp_path: Path) -> None:
    out = tmp_path / "tidegate.json"
    assert run("metrics", "dashboard", "--out", str(out)).returncode == 0
    printed = json.loads(out.read_text("utf-8"))
    assert printed == json.loads(run("metrics", "dashboard", "--json").stdout) == dashboard()
    assert printed["uid"] == UID
