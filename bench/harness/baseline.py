"""A result beside the one before a change: ``NAME-before.json`` is a column next to ``NAME.json``.

Invariants: samples never mix: earlier ones are the peer ``before``; each half keeps command and revision (the
earlier in a note).
"""

from __future__ import annotations

from pathlib import Path

from bench.harness.results import EVERYTHING_ELSE, Metric, Result, load

BEFORE = "before"
SUFFIX = f"-{BEFORE}"


def is_before(path: Path) -> bool:
    """True for a file that only serves as a comparison."""
    return path.stem.endswith(SUFFIX) and path.with_stem(path.stem.removesuffix(SUFFIX)).exists()


def load_beside(path: Path) -> Result:
    """A file's result, with the earlier one beside it if there is one. Raises BenchError."""
    before = path.with_stem(f"{path.stem}{SUFFIX}")
    return merged(load(path), load(before)) if before.exists() else load(path)


def merged(result: Result, before: Result) -> Result:
    """``result`` with our figures from ``before`` as another peer."""
    known = {(metric.scenario, metric.title): metric.model_copy(deep=True) for metric in result.metrics}
    for old in before.metrics:
        samples = old.samples.get(before.ours)
        if samples:
            metric = known.setdefault((old.scenario, old.title), _without_samples(old))
            metric.samples[BEFORE] = list(samples)
            metric.headline = metric.headline or old.headline
    note = f"before: revision {before.revision}, `{before.command}`, {before.started_at[:16]}Z"
    return result.model_copy(
        update={
            "peers": [*result.peers, BEFORE],
            "metrics": sorted(known.values(), key=lambda metric: metric.title == EVERYTHING_ELSE),
            "notes": [*result.notes, note],
        }
    )


def _without_samples(metric: Metric) -> Metric:
    return metric.model_copy(update={"samples": {}})
