"""A real broker that demands a client's certificate and a token, and lets not everybody see everything."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.rebuild.test_rebuild import Unstarted
from tests.support import certificates
from tests.support.cluster import Cluster, TrackerKind
from tests.support.lane import Lane
from tests.support.tokens import token, token_conf
from tidegate.pipeline.errors import OptionError, TopicError, UnreachableError
from tidegate.pipeline.rebuild import job
from tidegate.pipeline.rebuild.options import RebuildOptions
from tidegate.pipeline.topic.cluster import ReadFrom
from tidegate.plugin.local.process import free_ports

pytestmark = pytest.mark.broker
HOUR_MS = 3_600_000
OPERATOR, STRANGER = "operator", "stranger"


@dataclass(frozen=True)
class Secured:
    """Where it is, and what opens it."""

    topic: str
    service_url: str
    admin_url: str
    socket: Path
    certificates: certificates.Certificates
    tokens: dict[str, Path]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A broker with 200 delayed messages; who comes to its other ports, without TLS, is an operator."""
    folder = tmp_path_factory.mktemp("secured")
    made, secret = certificates.make(folder), secrets.token_bytes(32)
    (folder / "secret").write_bytes(secret)
    tokens = {role: folder / f"{role}.token" for role in (OPERATOR, STRANGER, "forged")}
    for role, path in tokens.items():
        path.write_text(token(role, b"another secret" * 3 if role == "forged" else secret) + "\n")
    broker_port, web_port = free_ports(2)
    conf = {
        "brokerServicePortTls": str(broker_port),
        "webServicePortTls": str(web_port),
        "tlsCertificateFilePath": str(made.server),
        "tlsKeyFilePath": str(made.server_key),
        "tlsTrustCertsFilePath": str(made.authority),
        "tlsRequireTrustedClientCertOnConnect": "true",
        "anonymousUserRole": "tests",
        **token_conf(folder / "secret", "tests", OPERATOR),
    }
    with tempfile.TemporaryDirectory(prefix="tidegate-") as short:
        cluster = Cluster(TrackerKind.TIDEGATE, folder, Path(short) / "daemon.sock")
        cluster.broker.configure(conf)
        try:
            cluster.start()
            lane = Lane(cluster, "secured")
            lane.reserve()
            lane.send_in(*[HOUR_MS + number for number in range(200)])
            yield Secured(
                f"persistent://{lane.topic}",
                f"pulsar+ssl://127.0.0.1:{broker_port}",
                f"https://127.0.0.1:{web_port}",
                cluster.daemon.socket_path,
                made,
                tokens,
            )
            lane.close()
        finally:
            cluster.end()


def rebuilt(secured: Secured, work: Path, **more: Any) -> dict[str, Any]:
    options = RebuildOptions(
        topic=secured.topic,
        subscription="sub",
        admin_url=secured.admin_url,
        socket=str(secured.socket),
        work=str(work),
        token_file=str(secured.tokens[OPERATOR]),
        tls_ca_file=str(secured.certificates.authority),
        tls_cert_file=str(secured.certificates.client),
        tls_key_file=str(secured.certificates.client_key),
    ).model_copy(update=more)
    result, exit_code = job.run(
        Unstarted(),
        options.model_dump(mode="json"),
    )
    assert exit_code == 0
    found: dict[str, Any] = result
    return found


@pytest.mark.parametrize("read_from", [ReadFrom.BROKER, ReadFrom.BOOKIES])
def test_who_may_gets_in(secured: Secured, tmp_path: Path, read_from: ReadFrom) -> None:
    found = rebuilt(secured, tmp_path / "work", read_from=read_from)
    assert found["matched"]
    assert found["entries"] == 200


def test_the_broker_s_url_is_asked_for_or_given(secured: Secured, tmp_path: Path) -> None:
    found = rebuilt(
        secured, tmp_path / "work", read_from=ReadFrom.BROKER, service_url=secured.service_url, dry_run=True
    )
    assert found["entries"] == 200


@pytest.mark.parametrize(
    ("without", "kind", "words"),
    [
        ({"tls_ca_file": None}, TopicError, "not trusted"),
        ({"tls_cert_file": None, "tls_key_file": None}, UnreachableError, "certificate"),
        ({"token_file": "forged"}, TopicError, "does not know who this is"),
        ({"token_file": STRANGER}, TopicError, "does not let this token see"),
        ({"token_file": "/nowhere/token"}, OptionError, "cannot read the token"),
        ({"tls_ca_file": "/nowhere/ca"}, OptionError, "cannot use the TLS files"),
        ({"admin_url": "http"}, UnreachableError, "does not answer"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_who_may_not_is_told_why(
    secured: Secured, tmp_path: Path, without: dict[str, str | None], kind: type[Exception], words: str
) -> None:
    more = dict(without)
    if (role := more.get("token_file")) in secured.tokens:
        more["token_file"] = str(secured.tokens[str(role)])
    if "admin_url" in more:
        more["admin_url"] = secured.admin_url.replace("https", "http")
    with pytest.raises(kind, match=words) as raised:
        rebuilt(secured, tmp_path / "work", **more)
    assert "\n" not in str(raised.value)
    assert not list(tmp_path.iterdir())
