"""What every test shares: the markers."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers of the tests on a real broker."""
    config.addinivalue_line(
        "markers", "tidegate_only: about the daemon or strict time; left out with Pulsar's own trackers"
    )
