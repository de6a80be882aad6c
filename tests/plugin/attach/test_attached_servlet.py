"""The servlet that `attach` installs, in a broker with tokens, two tenants and TLS: who may what."""

from __future__ import annotations

import contextlib
import secrets
import ssl
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import httpx
import pulsar
import pytest

from tests.plugin.attach.test_attached_broker import tidegate
from tests.support import certificates
from tests.support.servlets import Web, problem
from tests.support.tokens import token, token_conf
from tests.support.waiting import wait_until
from tidegate.plugin.local.broker import Broker
from tidegate.plugin.local.daemon import Daemon
from tidegate.plugin.local.process import free_ports

pytestmark = pytest.mark.broker
TOPIC, OTHER = "acme/shop/orders", "rival/shop/orders"
OPERATOR, PROXY = "operator", "proxy"


class TokenBroker(Broker):
    """A broker that tells nobody without a token whether it is ready."""

    token: str

    def _probe(self, asking: contextlib.ExitStack) -> Callable[[], str | None]:
        web = Web(self.admin_url, self.token)
        asking.callback(web.close)

        def lacks() -> str | None:
            with contextlib.suppress(httpx.HTTPError):
                answer = web.client.get("/admin/v2/namespaces/public")
                if answer.is_success and "public/default" in answer.json():
                    return None
            return "it has no namespace public/default"

        return lacks


class Attached(NamedTuple):
    """A broker; ``web`` opens its web service for a role, "" for nobody."""

    web: Callable[[str], Web]
    tls_url: str
    made: certificates.Certificates
    token_of: Callable[[str], str]


@pytest.fixture
def attached(whole_home: Path, daemon: Daemon, tmp_path: Path) -> Iterator[Attached]:
    """Tenants acme and rival, each with an administrator, and a topic with five waiting messages."""
    secret, made = secrets.token_bytes(32), certificates.make(tmp_path)
    (tmp_path / "secret").write_bytes(secret)
    (tls_port,) = free_ports(1)
    conf = {
        **token_conf(tmp_path / "secret", OPERATOR),
        "proxyRoles": PROXY,
        "webServicePortTls": str(tls_port),
        "tlsCertificateFilePath": str(made.server),
        "tlsKeyFilePath": str(made.server_key),
        "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
        "brokerClientAuthenticationParameters": f"token:{token(OPERATOR, secret)}",
        "narExtractionDirectory": str(tmp_path / "nar"),
    }
    tidegate("attach", whole_home, "--socket", daemon.socket_path)
    opened: list[Web] = []

    def web(role: str) -> Web:
        opened.append(Web(broker.admin_url, token(role, secret) if role else None))
        return opened[-1]

    broker = TokenBroker(whole_home, tmp_path / "broker", conf=conf)
    broker.token = token(OPERATOR, secret)
    with broker:
        operator = web(OPERATOR).client
        client = pulsar.Client(
            broker.service_url,
            pulsar.AuthenticationToken(token(OPERATOR, secret)),
            operation_timeout_seconds=60,
            logger=pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(tmp_path / "client.log")),
        )
        for tenant in ("acme", "rival"):
            fill(client, operator, tenant)
        yield Attached(web, f"https://127.0.0.1:{tls_port}", made, lambda role: token(role, secret))
        client.close()
    for one in opened:
        one.close()


def fill(client: pulsar.Client, operator: httpx.Client, tenant: str) -> None:
    """Make a tenant with the roles TENANT-admin, -app (may do both), -reader (may consume) and -writer."""
    roles = {"adminRoles": [f"{tenant}-admin"], "allowedClusters": ["standalone"]}
    operator.put(f"/admin/v2/tenants/{tenant}", json=roles).raise_for_status()
    operator.put(f"/admin/v2/namespaces/{tenant}/shop").raise_for_status()
    for role, actions in (("app", ["produce", "consume"]), ("reader", ["consume"]), ("writer", ["produce"])):
        granted = f"/admin/v2/namespaces/{tenant}/shop/permissions/{tenant}-{role}"
        operator.post(granted, json=actions).raise_for_status()
    client.subscribe(f"{tenant}/shop/orders", "sub", consumer_type=pulsar.ConsumerType.Shared)
    producer = client.create_producer(f"{tenant}/shop/orders")
    for number in range(5):
        producer.send(b"%d" % number, deliver_after=timedelta(hours=number + 1))


def test_each_role_gets_what_it_may_have(attached: Attached) -> None:
    app = attached.web("acme-app")
    wait_until(lambda: entries(app) == 5, "five are in the index")
    ids = [one["message_id"] for one in app.get(TOPIC, "waiting").json()["entries"]]

    # without a token, and with a forged one: the broker's own filter
    assert attached.web("").get(TOPIC, "tide").status_code == 401
    forged = Web(str(app.client.base_url), token("acme-app", b"another secret" * 3))
    assert forged.get(TOPIC, "tide").status_code == 401
    forged.close()

    # another tenant's token
    for role in ("rival-admin", "rival-app", "nobody"):
        stranger = attached.web(role)
        for answer in (
            stranger.get(TOPIC, "tide"),
            stranger.get(TOPIC, "waiting"),
            stranger.get(TOPIC, f"messages/{ids[0]}"),
            stranger.client.get(f"/tidegate/v1/persistent/{TOPIC}/tide"),
            stranger.post(TOPIC, "cancel", {"all": True}),
            stranger.post(TOPIC, "nonsense", {}),
            stranger.get("acme/shop/nothing", "tide"),
            stranger.get("acme/nothing/t", "tide"),
        ):
            assert problem(answer)[0] == 403, (role, answer.request.url)
    assert entries(app) == 5
    assert entries(attached.web("rival-app"), OTHER) == 5

    # looking is consuming, changing is both
    assert entries(attached.web("acme-reader")) == 5
    status, detail = problem(attached.web("acme-reader").post(TOPIC, "cancel", {"all": True}))
    assert (status, "may look and not change" in detail) == (403, True)
    assert problem(attached.web("acme-writer").get(TOPIC, "tide"))[0] == 403
    assert problem(attached.web("acme-writer").post(TOPIC, "cancel", {"all": True}))[0] == 403
    assert entries(app) == 5
    for number, role in enumerate(("acme-app", "acme-admin", OPERATOR)):
        answer = attached.web(role).post(TOPIC, "cancel", {"ids": [ids[number]], "dry_run": True})
        assert answer.json()["dry_run"], (role, answer.text)

    # the page has no data; of all that the broker has a superuser sees, of a namespace its own people
    assert attached.web("").client.get("/tidegate/").status_code == 401
    for role, of_page, of_all, of_namespace in (
        ("acme-app", 200, 403, 200),
        ("acme-admin", 200, 403, 200),
        ("rival-app", 200, 403, 403),
        ("nobody", 200, 403, 403),
        (OPERATOR, 200, 200, 200),
        (PROXY, 200, 403, 403),
    ):
        asking = attached.web(role).client
        assert asking.get("/tidegate/").status_code == of_page, role
        for path in ("tide", "status"):
            assert asking.get(f"/tidegate/v1/{path}").status_code == of_all, (role, path)
        answer = asking.get("/tidegate/v1/persistent/acme/shop/tide")
        assert answer.status_code == of_namespace, (role, answer.text)
        assert asking.get("/tidegate/v1/persistent/acme/nothing/tide").status_code in {403, 404}
        pretended = asking.get("/tidegate/v1/status", headers={"X-Original-Principal": OPERATOR})
        assert pretended.status_code == 403 or role == OPERATOR
    assert app.client.get("/tidegate/v1/persistent/acme/shop/tide").json()["entries"] == 5

    # a proxy speaks for whom it names, and only if both may
    proxied = attached.web(PROXY).client
    for original, expected in (("acme-app", 403), (None, 403), (PROXY, 403)):
        headers = {} if original is None else {"X-Original-Principal": original}
        answer = proxied.get(f"/tidegate/v1/persistent/{TOPIC}/sub/tide", headers=headers)
        assert answer.status_code == expected, (original, answer.text)
    headers = {"X-Original-Principal": "acme-app"}
    assert (
        attached.web("rival-app")
        .client.get(f"/tidegate/v1/persistent/{TOPIC}/sub/tide", headers=headers)
        .status_code
        == 403
    )


def test_the_port_s_tls_and_tokens_are_used_as_they_are(attached: Attached) -> None:
    context = ssl.create_default_context(cafile=str(attached.made.authority))
    web = Web(attached.tls_url, attached.token_of("acme-app"), verify=context)
    wait_until(lambda: entries(web) == 5, "five are in the index")
    web.close()


def entries(web: Web, topic: str = TOPIC) -> int:
    answer = web.get(topic, "tide")
    return int(answer.json()["entries"]) if answer.is_success else -answer.status_code
