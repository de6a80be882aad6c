"""What every test shares: the markers."""

from __future__ import annotations

import signal

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers of the tests on a real broker; let Ctrl-C work."""
    config.addinivalue_line(
        "markers", "tidegate_only: about the daemon or strict time; left out with Pulsar's own trackers"
    )
    # A shell that starts a job in the background makes it ignore SIGINT, and every process that we start
    # would inherit that: then Ctrl-C could not be tested.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
