"""Requests that the broker's web service passes on, over the daemon's socket: the same API, and the role."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from tests.support.daemons import StartDaemon
from tests.support.deciding import TOPIC, waiting
from tests.support.shim_client import ShimClient
from tidegate.plugin.telemetry.page import page
from tidegate.plugin.wire.codec import decode, encode
from tidegate.plugin.wire.control_messages import HttpRequest, HttpResponse
from tidegate.plugin.wire.frames import VERSION_MAX, VERSION_MIN, FrameDecoder
from tidegate.plugin.wire.messages import Error, Hello, Message, Role

ORDERS = "/tidegate/v1/persistent/public/default/orders/sub"


async def told(path: Path, *requests: HttpRequest, role: Role = Role.CONTROL) -> dict[int, Message]:
    """The answers to requests that are sent at once, by their number; an ERROR ends them."""
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(encode(Hello(VERSION_MIN, VERSION_MAX, role, "web-1", "pulsar")))
    for number, request in enumerate(requests):
        writer.write(encode(request, seq=number))
    answers: dict[int, Message] = {}
    decoder = FrameDecoder()
    try:
        while len(answers) < len(requests):
            data = await asyncio.wait_for(reader.read(65_536), 20)
            for frame in decoder.feed(data):
                message = decode(frame)
                if isinstance(message, HttpResponse | Error):
                    answers[frame.seq] = message
            if not data or any(isinstance(one, Error) for one in answers.values()):
                break
    finally:
        writer.close()
    return answers


async def ask(path: Path, method: str, target: str, body: Any = None, role: str = "") -> tuple[int, str, Any]:
    """Status, type and document of one answer."""
    data = b"" if body is None else json.dumps(body).encode()
    answer = (await told(path, HttpRequest(method, target, role, data)))[0]
    assert isinstance(answer, HttpResponse)
    return answer.status, answer.content_type, json.loads(answer.body)


async def test_the_page_comes_over_the_socket_too(start: StartDaemon, socket_path: Path) -> None:
    async with start():
        requests = [HttpRequest(method, "/tidegate/", "", b"") for method in ("GET", "POST")]
        answers = await told(socket_path, *requests)
    shown, refused = answers[0], answers[1]
    assert isinstance(shown, HttpResponse)
    assert (shown.status, shown.content_type) == (200, "text/html; charset=utf-8")
    assert shown.body == page().body
    assert isinstance(refused, HttpResponse)
    assert refused.status == 405


async def test_the_socket_answers_as_http_does(start: StartDaemon, socket_path: Path) -> None:
    async with start(), await ShimClient.connect(socket_path) as broker:
        await waiting(broker)
        status, kind, tide = await ask(socket_path, "GET", f"{ORDERS}/tide?step_ms=60000")
        assert (status, kind) == (200, "application/json")
        assert tide["entries"] == 100
        _, _, page = await ask(socket_path, "GET", f"{ORDERS}/waiting?limit=3")
        assert [one["message_id"] for one in page["entries"]] == ["5:0", "5:1", "5:2"]
        _, _, shown = await ask(socket_path, "GET", f"{ORDERS}/messages/5:1")
        assert (shown["state"], shown["topic"]) == ("waiting", TOPIC)


async def test_a_change_is_made_and_its_role_is_logged(
    start: StartDaemon, socket_path: Path, short_dir: Path
) -> None:
    async with start(), await ShimClient.connect(socket_path) as broker:
        await waiting(broker)
        body = {"ids": ["5:0", "9:9"]}
        status, _, said = await ask(socket_path, "POST", f"{ORDERS}/cancel", body, "shop\n")
        assert status == 200
        assert (said["done"], said["unknown"]) == (1, 1)
        line = json.loads((short_dir / "data" / "audit.jsonl").read_text("utf-8"))
        assert (line["role"], line["done"]) == ("shop\n, over the broker", 1)


async def test_a_body_cannot_name_a_role(start: StartDaemon, socket_path: Path) -> None:
    async with start(), await ShimClient.connect(socket_path) as broker:
        await waiting(broker)
        body = {"ids": ["5:0"], "role": "admin"}
        status, kind, said = await ask(socket_path, "POST", f"{ORDERS}/cancel", body)
        assert (status, kind) == (400, "application/problem+json")
        assert "'role' is not known" in said["detail"]


async def test_what_is_wrong_is_a_problem(start: StartDaemon, socket_path: Path) -> None:
    async with start():
        for method, target, body, status in (
            ("GET", f"{ORDERS}/tide", None, 404),
            ("GET", "/tidegate/v1/elsewhere", None, 404),
            ("GET", "nonsense", None, 404),
            ("PUT", f"{ORDERS}/cancel", None, 405),
            ("POST", f"{ORDERS}/cancel", None, 400),
            ("POST", f"{ORDERS}/cancel", {"ids": ["x"]}, 400),
        ):
            found, kind, document = await ask(socket_path, method, target, body)
            assert (found, kind) == (status, "application/problem+json"), (method, target, document)
            assert document["status"] == status


async def test_an_unknown_name_tells_nothing_of_other_topics(start: StartDaemon, socket_path: Path) -> None:
    async with start(), await ShimClient.connect(socket_path) as broker:
        details = []
        for step in ("before any", "beside orders:sub"):
            for method, action, body in (
                ("GET", "tide", None),
                ("GET", "waiting", None),
                ("GET", "messages/5:1", None),
                ("GET", "pace", None),
                ("POST", "cancel", {"ids": ["5:0"]}),
                ("POST", "release", {"all": True}),
                ("POST", "pause", {}),
            ):
                # Similar to orders, and one that orders matches as a pattern.
                for topic in ("order", "%2Arders"):
                    target = f"/tidegate/v1/persistent/public/default/{topic}/sub/{action}"
                    status, _, said = await ask(socket_path, method, target, body)
                    assert status == 404, (step, target)
                    details.append(said["detail"])
            if step == "before any":
                await waiting(broker)
        assert not [one for one in details if "orders" in one.replace("*rders", "")]
        assert len(set(details)) == 2, set(details)


async def test_several_requests_of_a_connection_are_answered_each(
    start: StartDaemon, socket_path: Path
) -> None:
    async with start(), await ShimClient.connect(socket_path) as broker:
        await waiting(broker)
        requests = [HttpRequest("GET", f"{ORDERS}/messages/5:{number}", "", b"") for number in range(10)]
        answers = await told(socket_path, *requests)
        times = []
        for number in range(10):
            answer = answers[number]
            assert isinstance(answer, HttpResponse)
            times.append(json.loads(answer.body)["deliver_at_ms"])
        assert [one - times[0] for one in times] == [1_000 * number for number in range(10)]


async def test_a_broker_cannot_ask(start: StartDaemon, socket_path: Path) -> None:
    async with start():
        request = HttpRequest("GET", f"{ORDERS}/tide", "", b"")
        (answer,) = (await told(socket_path, request, role=Role.BROKER)).values()
        assert isinstance(answer, Error)
        assert "HTTP_REQUEST is not for a broker" in answer.message
