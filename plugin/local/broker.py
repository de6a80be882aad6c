"""A Pulsar standalone broker on loopback, as a process that can be killed.

The demo, the drills, the tests against a real broker and the benches all start their broker here, so that
they measure the same one. Invariants:

- the broker writes (metadata, ledgers, logs, its conf file) only below ``work_dir``;
- every port is on 127.0.0.1 and free at the time of ``start``; a restart keeps the ports;
- ready means usable by every client: a standalone calls itself healthy before it has made the tenant
  ``public``, and then refuses new namespaces in it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

import httpx

from tidegate.plugin.local import toolchain
from tidegate.plugin.local.guard import Guard
from tidegate.plugin.local.process import LOOPBACK, LocalProcessError, Pause, free_ports
from tidegate.plugin.local.pulsar_process import Jvm, PulsarProcess, http_client, unhealthy
from tidegate.plugin.local.stale_bookie import forget_bookies

NAMESPACES = {"public": "public/default", "pulsar": "pulsar/system"}
"""The namespaces that a standalone makes after it calls itself healthy, by tenant, in this order."""


@dataclass(frozen=True)
class BrokerPorts:
    """The loopback ports of one standalone broker."""

    broker: int
    web: int
    bookie: int

    @classmethod
    def free(cls) -> Self:
        """Ports that are free now."""
        return cls(*free_ports(3))


class Broker(PulsarProcess):
    """One Pulsar standalone (metadata, bookie and broker in one JVM), without functions worker.

    ``conf`` overrides keys of the distribution's ``standalone.conf``; ``extra_classpath`` takes the shim's
    jar.
    """

    name = "broker"
    command = "standalone"
    conf_variable = "PULSAR_STANDALONE_CONF"
    template = "standalone.conf"

    def __init__(
        self,
        pulsar_home: Path,
        work_dir: Path,
        *,
        conf: Mapping[str, str] | None = None,
        extra_classpath: Sequence[Path] = (),
        heap_mib: int = 512,
        direct_mib: int = 512,
        jvm_options: Sequence[str] = (),
        ports: BrokerPorts | None = None,
        guard: Guard | None = None,
        pause: Pause = time.sleep,
    ) -> None:
        self.ports = ports or BrokerPorts.free()
        settings = {
            "bindAddress": LOOPBACK,
            "advertisedAddress": LOOPBACK,
            "brokerServicePort": str(self.ports.broker),
            "webServicePort": str(self.ports.web),
            "allowLoopback": "true",
            "listeningInterface": "lo",
            # Without this key the standalone ignores its bookie's port and takes another at every start.
            "allowEphemeralPorts": "true",
            **(conf or {}),
        }
        super().__init__(
            pulsar_home,
            work_dir,
            port=self.ports.broker,
            conf=settings,
            jvm=Jvm(heap_mib, start_mib=256, direct_mib=direct_mib, gc=(), options=jvm_options),
            guard=guard,
            pause=pause,
            jars=extra_classpath,
        )

    @property
    def service_url(self) -> str:
        """The URL for Pulsar clients."""
        return f"pulsar://{LOOPBACK}:{self.ports.broker}"

    @property
    def admin_url(self) -> str:
        """The base of the admin REST interface and of ``/metrics``."""
        return f"http://{LOOPBACK}:{self.ports.web}"

    @property
    def metadata_dir(self) -> Path:
        """The directory of the metadata store, a RocksDB."""
        return self.work_dir / "metadata"

    def _prepare(self) -> tuple[list[str], dict[str, str]]:
        problems = toolchain.check_ports(vars(self.ports))
        if problems:
            raise LocalProcessError(problems[0].text)
        forget_bookies(self.metadata_dir)
        command, environment = super()._prepare()
        own = [
            "-nfw", "-nss", "-a", LOOPBACK,
            "--metadata-dir", str(self.metadata_dir),
            "--bookkeeper-dir", str(self.work_dir / "bookkeeper"),
            "--bookkeeper-port", str(self.ports.bookie),
        ]  # fmt: skip
        return command + own, environment

    def _probe(self, asking: contextlib.ExitStack) -> Callable[[], str | None]:
        return partial(_unusable, http_client(asking, self.admin_url))


def _unusable(admin: httpx.Client) -> str | None:
    """The missing part for a client of the broker, in words; None if it is usable."""
    if (lacks := unhealthy(admin)) is not None:
        return lacks
    try:
        for tenant, namespace in NAMESPACES.items():
            answer = admin.get(f"/admin/v2/namespaces/{tenant}")
            if not answer.is_success:
                return f"it has no tenant {tenant}"
            if namespace not in answer.json():
                return f"it has no namespace {namespace}"
    except (httpx.HTTPError, ValueError):
        return f"{admin.base_url} does not answer"
    return None
