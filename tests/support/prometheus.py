"""A real Prometheus on loopback, and its promtool; Debian's package ``prometheus`` has both."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from tests.support.waiting import wait_until
from tidegate.plugin.local.distribution import default_cache_dir
from tidegate.plugin.local.process import LOOPBACK, free_ports
from tidegate.plugin.telemetry.alerts import alerts, as_groups
from tidegate.plugin.telemetry.dashboard import dashboard

SCRAPE_S = 1
_FETCHED = Path("prometheus/usr/bin")
OF_A_BROKER = ("$broker", "tidegate_messages_changed_total")
"""In queries that only a broker answers: its own, and those about changes, which it decides."""
QUICK = {"[15m]": "[1m]", "[5m]": "[10s]", "[$__rate_interval]": "[10s]"}


def find_prometheus() -> str | None:
    """Its command, None where it or promtool is missing."""
    return _find("prometheus") if _find("promtool") else None


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    program = _find("promtool")
    assert program is not None
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)


def _find(name: str) -> str | None:
    """On PATH, or where ``tests/fetch_prometheus`` has put it."""
    return shutil.which(name) or shutil.which(name, path=default_cache_dir(os.environ) / _FETCHED)


def quick_rules() -> dict[str, Any]:
    """Our rules, except that they fire after a second, and look at seconds instead of minutes."""
    groups = as_groups(alerts())
    for rule in groups["groups"][0]["rules"]:
        rule["expr"] = quick(rule["expr"])
        rule["for"] = f"{SCRAPE_S}s"
    return groups


def quick(expr: str) -> str:
    """The expression over seconds."""
    for window, short in QUICK.items():
        expr = expr.replace(window, short)
    return expr


def panels_without_data(prometheus: Prometheus) -> set[str]:
    """The queries of the dashboard that have no value, or nothing but NaN."""
    queries = {target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", [])}
    return {expr for expr in queries if not prometheus.has_data(expr)}


def values_of_variable(prometheus: Prometheus, name: str) -> list[str]:
    """The choices of a variable of the dashboard, asked for as Grafana does."""
    variables = {one["name"]: one for one in dashboard()["templating"]["list"]}
    asked = re.fullmatch(r"label_values\((\w+), (\w+)\)", variables[name]["query"])
    assert asked is not None, variables[name]
    return prometheus.label_values(asked[1], asked[2])


class Prometheus:
    """Scrapes every second. targets: addresses by job. For a ``with`` block."""

    def __init__(self, work_dir: Path, targets: Mapping[str, Sequence[str]]) -> None:
        self._dir = work_dir
        self._targets = targets
        self._address = f"{LOOPBACK}:{free_ports(1)[0]}"
        self._process: subprocess.Popen[bytes] | None = None
        self._http = httpx.Client(base_url=f"http://{self._address}", trust_env=False, timeout=30)

    def __enter__(self) -> Prometheus:
        program = find_prometheus()
        assert program is not None, "no Prometheus: install Debian's package prometheus"
        self._dir.mkdir(parents=True, exist_ok=True)
        (self._dir / "rules.json").write_text(json.dumps(quick_rules()))
        config = {
            "global": {
                "scrape_interval": f"{SCRAPE_S}s",
                "scrape_timeout": f"{SCRAPE_S}s",
                "evaluation_interval": f"{SCRAPE_S}s",
            },
            "rule_files": ["rules.json"],
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": list(each)}]}
                for job, each in self._targets.items()
            ],
        }
        (self._dir / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
        command = [
            program,
            f"--config.file={self._dir / 'prometheus.yml'}",
            f"--storage.tsdb.path={self._dir / 'data'}",
            f"--web.listen-address={self._address}",
        ]
        with (self._dir / "log").open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_until(self._is_ready, "Prometheus is ready")
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def query(self, expr: str) -> list[dict[str, Any]]:
        """The series of now."""
        answer = self._http.get("/api/v1/query", params={"query": expr}).json()
        assert answer["status"] == "success", answer
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found

    def label_values(self, metric: str, label: str) -> list[str]:
        """The values of a label in a metric's series."""
        answer = self._http.get(f"/api/v1/label/{label}/values", params={"match[]": metric}).json()
        assert answer["status"] == "success", answer
        found: list[str] = answer["data"]
        return found

    def has_data(self, expr: str) -> bool:
        """True if a query of the dashboard has a number, for any instance."""
        found = self.query(quick(expr).replace("$daemon", ".*").replace("$broker", ".*"))
        return any(one["value"][1] != "NaN" for one in found)

    def firing(self) -> set[tuple[str, str]]:
        """Names and instances of the alerts that fire."""
        answer = self._http.get("/api/v1/alerts").json()
        return {
            (one["labels"]["alertname"], one["labels"]["instance"])
            for one in answer["data"]["alerts"]
            if one["state"] == "firing"
        }

    def wait_firing(self, name: str, instance: str) -> None:
        """Wait until the alert fires."""
        wait_until(lambda: (name, instance) in self.firing(), f"{name} fires for {instance}")

    def _is_ready(self) -> bool:
        try:
            return self._http.get("/-/ready").is_success
        except httpx.HTTPError:
            return False
