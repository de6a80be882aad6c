"""Dispatchers that bypass Tidegate, as a broker names them: status, probes, metrics and the log tell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.daemons import StartDaemon
from tests.support.shim_client import ShimClient
from tests.support.waiting import until
from tidegate.plugin.daemon.report import status
from tidegate.plugin.daemon.serve import RunningDaemon
from tidegate.plugin.wire.messages import BYPASSED_MAX, Bypassed, BypassedDispatcher

TOPIC = "persistent://public/default/orders"
ONE = BypassedDispatcher(TOPIC, "billing", 50, "Pulsar's Bucket tracker has them")


async def report(daemon: RunningDaemon) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(await status(daemon.engine, 10))
    return answer


async def test_a_bypass_is_told_by_status_readiness_and_metrics(
    start: StartDaemon, socket_path: Path
) -> None:
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        assert (await report(daemon))["bypassed"] == {"dispatchers": 0, "named": []}
        assert daemon.engine.health.ready
        client.send(Bypassed(1, (ONE,)))
        await until(lambda: not daemon.engine.health.ready)
        (reason,) = daemon.engine.health.reasons()
        assert "BYPASSED" in reason
        assert f"{TOPIC}:billing at broker-1: Pulsar's Bucket tracker has them" in reason
        answer = await report(daemon)
        assert answer["daemon"]["not_ready"] == [reason]
        assert answer["bypassed"] == {
            "dispatchers": 1,
            "named": [
                {
                    "broker": "broker-1",
                    "topic": TOPIC,
                    "subscription": "billing",
                    "delayed": 50,
                    "reason": ONE.reason,
                }
            ],
        }
        exposition = (await daemon.exposition()).decode()
        assert "tidegate_bypassed_dispatchers 1.0" in exposition
        assert (
            f'tidegate_bypassed_messages{{broker="broker-1",reason="{ONE.reason}",'
            f'subscription="billing",topic="{TOPIC}"}} 50.0'
        ) in exposition
        client.send(Bypassed(0))
        await until(lambda: daemon.engine.health.ready)


async def test_a_broker_that_is_gone_bypasses_nothing(start: StartDaemon, socket_path: Path) -> None:
    async with start() as daemon:
        async with await ShimClient.connect(socket_path) as client:
            client.send(Bypassed(1, (ONE,)))
            await until(lambda: not daemon.engine.health.ready)
        await until(lambda: daemon.engine.health.ready)


async def test_brokers_are_added_up_and_a_newer_connection_replaces(
    start: StartDaemon, socket_path: Path
) -> None:
    async with (
        start() as daemon,
        await ShimClient.connect(socket_path, "broker-1") as first,
        await ShimClient.connect(socket_path, "broker-2") as second,
    ):
        first.send(Bypassed(40, (ONE,)))
        second.send(Bypassed(2, (ONE,)))
        await until(lambda: daemon.engine.bypasses.dispatchers == 42)
        assert "and 40 more" in daemon.engine.health.reasons()[0]
        async with await ShimClient.connect(socket_path, "broker-1") as again:
            again.send(Bypassed(1, (ONE,)))
            await until(lambda: daemon.engine.bypasses.dispatchers == 3)


async def test_the_longest_names_leave_room_for_an_answer(start: StartDaemon, socket_path: Path) -> None:
    long = tuple(
        BypassedDispatcher(f"{number:02}" + "\x01" * 8_190, "é" * 4_096, 1, "r" * 500)
        for number in range(BYPASSED_MAX)
    )
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        client.send(Bypassed(BYPASSED_MAX, long))
        await client.open(TOPIC)
        await until(lambda: daemon.engine.bypasses.dispatchers == BYPASSED_MAX)
        found = await report(daemon)
        assert len(found["bypassed"]["named"]) == BYPASSED_MAX
        assert found["totals"]["subscriptions"] == 1
