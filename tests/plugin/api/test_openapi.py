"""The OpenAPI description, and schemathesis, which makes requests of it and judges the answers."""

from __future__ import annotations

import asyncio
import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from tests.support.deciding import TOPIC, waiting
from tests.support.served import TOKEN, Served
from tidegate.plugin.api.openapi import description
from tidegate.plugin.api.routes import DOMAINS, OPERATIONS, place_of

EXAMPLES = 8
NAMES = {
    "tenant": "public",
    "namespace": "default",
    "topic": "orders",
    "segment": "0000-7fff-1",
    "subscription": "sub",
}
# A range may end before it begins, and a partition may be none of the topic's: no schema says so.
NOT_CHECKED = ("positive_data_acceptance",)
# 413 refuses a list that is too long, and its default lacks that.
CONFIG = """
[checks.negative_data_rejection]
expected-statuses = [400, 401, 403, 404, 405, 413, 415, 421]
"""


def test_each_operation_is_described_where_it_is() -> None:
    known = description()
    assert known["openapi"] == "3.1.0"
    draft = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    jsonschema_rs.meta.validate(draft | {"$defs": known["components"]["schemas"]})
    found = {}
    for path, methods in known["paths"].items():
        for method, about in methods.items():
            place = place_of(path.replace("{", "").replace("}", ""))
            found[about["operationId"]] = place.operation(method.upper())
    assert set(map(id, found.values())) == set(map(id, OPERATIONS))
    once = {"EVERYTHING", "NAMESPACE"}
    assert len(found) == sum(1 if one.scope.name in once else len(DOMAINS) for one in OPERATIONS)


async def test_the_description_is_served(served: Served) -> None:
    assert (await served.get("openapi.json")).json() == json.loads(json.dumps(description()))


def of_what_is_there() -> dict[str, Any]:
    """The description, with the names that the daemon has and no others."""
    known = copy.deepcopy(description())
    for methods in known["paths"].values():
        for about in methods.values():
            for one in about["parameters"]:
                if one["in"] == "path" and one["name"] in NAMES:
                    one["schema"] = {"const": NAMES[one["name"]]}
    return known


@pytest.mark.parametrize("there", [True, False])
async def test_answers_are_as_described(served: Served, short_dir: Path, there: bool) -> None:
    await waiting(served.broker, TOPIC, 2, 3)
    await waiting(served.broker, "segment://public/default/orders/0000-7fff-1", 2, 3)
    schema = short_dir / "openapi.json"
    schema.write_text(json.dumps(of_what_is_there() if there else description()))
    (short_dir / "schemathesis.toml").write_text(CONFIG)
    command = (
        *(sys.executable, "-m", "schemathesis.cli", "run", str(schema), "--url", served.url),
        *("-H", f"Authorization: Bearer {TOKEN}", "--max-examples", str(EXAMPLES), "--seed", "1"),
        *("--exclude-checks", ",".join(NOT_CHECKED), "--phases", "examples,coverage,fuzzing", "--no-color"),
        *("--suppress-health-check", "all", "--generation-database", "none", "--warnings", "off"),
    )
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, cwd=short_dir, timeout=300, check=False
    )
    said = "\n".join(line[:300] for line in (done.stdout + done.stderr).splitlines()[-200:])
    assert done.returncode == 0, said
    assert "No issues found" in done.stdout
