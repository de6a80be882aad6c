"""A Pulsar standalone broker on loopback, as a process that one can kill.

The demo, the drills, the tests against a real broker and the benches all start their broker here, so that
they measure the same thing. Invariants:

- everything the broker writes (metadata, ledgers, logs, its conf file) is below ``work_dir``;
- every port is on 127.0.0.1 and free at the time of ``start``; a restart keeps the ports;
- ready means that what every client uses is there: a standalone calls itself healthy before it has made the
  tenant ``public``, and whoever makes a namespace in it then is refused.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

import httpx

from tidegate.plugin.local import toolchain
from tidegate.plugin.local.guard import Guard
from tidegate.plugin.local.process import LOOPBACK, LocalProcess, LocalProcessError, Pause, free_ports
from tidegate.plugin.local.stale_bookie import forget_bookies

NAMESPACES = {"public": "public/default", "pulsar": "pulsar/system"}
"""What a standalone makes after it calls itself healthy, by tenant, in this order."""
_HTTP_TIMEOUT_S = 5.0


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


class Broker(LocalProcess):
    """One Pulsar standalone (metadata, bookie and broker in one JVM), without functions worker.

    ``conf`` overrides keys of the distribution's own ``standalone.conf``; ``extra_classpath`` is where the
    shim's jar comes in without touching the distribution. Its jars are copied at the first start: building
    the shim again must not change a jar that a running JVM has open.
    """

    name = "broker"

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
        super().__init__(work_dir, guard, pause)
        self.pulsar_home = pulsar_home
        self.ports = ports or BrokerPorts.free()
        self._conf = dict(conf or {})
        self._extra_classpath = list(extra_classpath)
        self._memory = f"-Xms{min(heap_mib, 256)}m -Xmx{heap_mib}m -XX:MaxDirectMemorySize={direct_mib}m"
        self._jvm_options = list(jvm_options)

    def configure(self, conf: Mapping[str, str]) -> None:
        """Other values for keys of the conf file, from the next start on."""
        self._conf |= conf

    @property
    def service_url(self) -> str:
        """What a Pulsar client connects to."""
        return f"pulsar://{LOOPBACK}:{self.ports.broker}"

    @property
    def admin_url(self) -> str:
        """The base of the admin REST interface and of ``/metrics``."""
        return f"http://{LOOPBACK}:{self.ports.web}"

    @property
    def metadata_dir(self) -> Path:
        """Where the metadata store is, a RocksDB."""
        return self.work_dir / "metadata"

    def _prepare(self) -> tuple[list[str], dict[str, str]]:
        self._check_ports()
        forget_bookies(self.metadata_dir)
        if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
            raise LocalProcessError("no java found: install a JDK 17 or newer, or set JAVA_HOME")
        environment = {
            **os.environ,
            "PULSAR_STANDALONE_CONF": str(self._write_conf()),
            "PULSAR_LOG_DIR": str(self.work_dir / "logs"),
            "PULSAR_LOG_APPENDER": "Console",
            "PULSAR_MEM": self._memory,
            # Pulsar's default logs every collection to the console: noise that hides the broker's own lines.
            "PULSAR_GC_LOG": "-Xlog:disable -Xlog:all=warning:stderr",
            "PULSAR_EXTRA_OPTS": " ".join(["-Dpulsar.allocator.exit_on_oom=false", *self._jvm_options]),
            "PULSAR_EXTRA_CLASSPATH": ":".join(map(str, self._own_jars())),
        }
        command = [
            str(self.pulsar_home / "bin" / "pulsar"), "standalone", "-nfw", "-nss", "-a", LOOPBACK,
            "--metadata-dir", str(self.metadata_dir),
            "--bookkeeper-dir", str(self.work_dir / "bookkeeper"),
            "--bookkeeper-port", str(self.ports.bookie),
        ]  # fmt: skip
        return command, environment

    def _probe(self, asking: contextlib.ExitStack) -> Callable[[], str | None]:
        client = httpx.Client(base_url=self.admin_url, timeout=_HTTP_TIMEOUT_S, trust_env=False)
        return partial(_unusable, asking.enter_context(client))

    def _own_jars(self) -> list[Path]:
        copies = [self.work_dir / jar.name for jar in self._extra_classpath]
        for jar, copy in zip(self._extra_classpath, copies, strict=True):
            if not copy.exists():
                shutil.copy2(jar, copy)
        return copies

    def _check_ports(self) -> None:
        problems = toolchain.check_ports(vars(self.ports))
        if problems:
            raise LocalProcessError(problems[0].text)

    def _write_conf(self) -> Path:
        template = self.pulsar_home / "conf" / "standalone.conf"
        try:
            text = template.read_text(encoding="utf-8")
        except OSError as error:
            raise LocalProcessError(
                f"{self.pulsar_home} is not a Pulsar home: cannot read {template}"
            ) from error
        settings = {
            "bindAddress": LOOPBACK,
            "advertisedAddress": LOOPBACK,
            "brokerServicePort": str(self.ports.broker),
            "webServicePort": str(self.ports.web),
            "allowLoopback": "true",
            "listeningInterface": "lo",
            # Without it the standalone takes another port for its bookie at every start than it was told.
            "allowEphemeralPorts": "true",
            **self._conf,
        }
        # A properties file: of a key that stands twice the last one counts.
        lines = "".join(f"{key}={value}\n" for key, value in settings.items())
        path = self.work_dir / "standalone.conf"
        path.write_text(f"{text}\n# Set by tidegate for this run\n{lines}", encoding="utf-8")
        return path


def _unusable(admin: httpx.Client) -> str | None:
    """What a client of the broker would miss, in words; None when nothing."""
    try:
        if admin.get("/admin/v2/brokers/health").text.strip() != "ok":
            return "its health check does not say ok"
        for tenant, namespace in NAMESPACES.items():
            answer = admin.get(f"/admin/v2/namespaces/{tenant}")
            if not answer.is_success:
                return f"it has no tenant {tenant}"
            if namespace not in answer.json():
                return f"it has no namespace {namespace}"
    except (httpx.HTTPError, ValueError):
        return f"{admin.base_url} does not answer"
    return None
