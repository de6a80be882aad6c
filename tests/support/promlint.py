"""The faults of an exposition that `promtool check metrics` finds, in Python.

The rules are promlint's in prometheus/client_golang 1.20 (testutil/promlint/validations), which is Go.
"""

from __future__ import annotations

import re

from prometheus_client.parser import text_string_to_metric_families

BASE_UNITS = (
    "amperes",
    "bytes",
    "celsius",
    "grams",
    "joules",
    "kelvin",
    "meters",
    "metres",
    "seconds",
    "volts",
)
OTHER_UNITS = (
    *("minutes", "hours", "days", "weeks", "kelvins", "fahrenheit", "rankine", "inches", "yards", "miles"),
    *("bits", "calories", "pounds", "ounces"),
)
PREFIXES = (
    *("pico", "nano", "micro", "milli", "centi", "deci", "deca", "hecto", "kilo", "kibi", "mega", "mibi"),
    *("giga", "gibi", "tera", "tebi", "peta", "pebi"),
)
ABBREVIATIONS = {"s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "tb", "pb", "m", "h", "d"}
CAMEL_CASE = re.compile("[a-z][A-Z]")


def problems(exposition: str) -> list[str]:
    """One line for each thing that is wrong."""
    found: list[str] = []
    families = list(text_string_to_metric_families(exposition))
    names = [name_of(family.name, family.type) for family in families]
    found += [f"{name}: twice" for name in {one for one in names if names.count(one) > 1}]
    for name, family in zip(names, families, strict=True):
        found += [f"{name}: {what}" for what in wrong_name(name, family.type)]
        if not family.documentation:
            found.append(f"{name}: no help text")
        labels = {label for sample in family.samples for label in sample.labels}
        if any(CAMEL_CASE.search(label) for label in labels):
            found.append(f"{name}: a label in camelCase")
        if ("le" in labels and family.type != "histogram") or "quantile" in labels:
            found.append(f"{name}: a label that is reserved")
        series = [(sample.name, tuple(sorted(sample.labels.items()))) for sample in family.samples]
        if len(series) != len(set(series)):
            found.append(f"{name}: a series twice")
    return found


def name_of(name: str, kind: str) -> str:
    """As it is in the exposition: the parser takes a counter's ending away."""
    return f"{name}_total" if kind == "counter" else name


def wrong_name(name: str, kind: str) -> list[str]:
    """The fault in the name of a metric of this kind."""
    words = name.split("_")
    found = []
    if unit_of(words) is not None:
        found.append(f"use base units instead of {unit_of(words)}")
    if ABBREVIATIONS.intersection(words[1:]):
        found.append("an abbreviated unit")
    if kind != "counter" and words[-1] == "total":
        found.append("not a counter, and ends in _total")
    if kind != "histogram" and words[-1] in ("bucket", "count", "sum"):
        found.append(f"not a histogram, and ends in _{words[-1]}")
    if kind in words[1:]:
        found.append(f"the type {kind} in the name")
    if ":" in name:
        found.append("a colon")
    if CAMEL_CASE.search(name):
        found.append("camelCase")
    return found


def unit_of(words: list[str]) -> str | None:
    """The first word that is a unit other than the base units."""
    for word in words:
        if word in BASE_UNITS:
            return None
        plain = next((word.removeprefix(prefix) for prefix in PREFIXES if word.startswith(prefix)), None)
        if word in OTHER_UNITS or (plain is not None and plain in (*BASE_UNITS, *OTHER_UNITS)):
            return word
    return None
