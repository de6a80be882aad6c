"""A broker that knows the tracker but not the daemon's socket does not start, and its log names the key."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cluster import PULSAR_HOME, SHIM_JAR, MissingPartError, TrackerKind, check_parts
from tidegate.plugin.local.broker import Broker
from tidegate.plugin.local.process import LocalProcessError
from tidegate.plugin.local.trackers import FACTORY_KEY, TIDEGATE_FACTORY

pytestmark = pytest.mark.broker


def test_a_broker_without_the_socket_key_ends_and_says_so(tmp_path: Path) -> None:
    try:
        check_parts(TrackerKind.TIDEGATE)
    except MissingPartError as error:
        pytest.fail(str(error), pytrace=False)
    conf = {FACTORY_KEY: TIDEGATE_FACTORY}
    broker = Broker(PULSAR_HOME, tmp_path / "broker", conf=conf, extra_classpath=[SHIM_JAR])
    try:
        with pytest.raises(LocalProcessError, match="the broker ended while starting; its log says why"):
            broker.start()
        text = broker.log_path.read_text(encoding="utf-8", errors="replace")
        assert "tidegateSocket is not set: name the socket that `tidegate serve --socket` listens on" in text
        assert "messaging service is ready" not in text
    finally:
        broker.kill()
