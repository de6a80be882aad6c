"""Short ways to results of a bench."""

from __future__ import annotations

from bench.harness.results import Machine, Metric, Result


def metric(title: str = "first due message", **fields: object) -> Metric:
    return Metric.model_validate({"scenario": "kill -9", "title": title, "unit": "s", **fields})


def result(*metrics: Metric, **fields: object) -> Result:
    return Result.model_validate(
        {
            "bench": "failover",
            "summary": "seconds to the first due message",
            "command": "python -m bench run failover",
            "quick": False,
            "runs": 3,
            "started_at": "2026-01-02T03:04:05+00:00",
            "duration_s": 12.5,
            "revision": "abcdef",
            "machine": Machine(
                cpu="a processor", cores=2, memory_gib=8, system="Linux 6", load_1min_at_start=0.5
            ),
            "versions": {"pulsar": "4.0.8"},
            "parameters": {},
            "peers": ["tidegate", "in-memory", "bucket"],
            "metrics": list(metrics),
            **fields,
        }
    )
