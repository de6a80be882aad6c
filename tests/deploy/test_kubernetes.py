"""The values for Pulsar's Helm chart: true of shim and daemon, run without Kubernetes, rendered by Helm.

With Helm and the chart of apache/pulsar-helm-chart, which CI does not have:

    TIDEGATE_TEST_PULSAR_CHART=…/charts/pulsar python -m pytest tests/deploy/test_kubernetes.py

With the package kubernetes-validate all objects are held against Kubernetes' own schemas, too.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
import yaml

from tests.support.servlets import Web
from tests.support.waiting import wait_until
from tidegate.plugin.attach import broker_keys, servlets
from tidegate.plugin.attach.attachment import shim_jar
from tidegate.plugin.attach.nar import NAME as NAR_NAME
from tidegate.plugin.attach.nar import SERVLET, servlet_nar
from tidegate.plugin.attach.pulsar_home import JAR_NAME
from tidegate.plugin.daemon.settings import load_settings
from tidegate.plugin.local.broker import Broker
from tidegate.plugin.local.daemon import without_settings
from tidegate.plugin.local.process import LOOPBACK, free_ports
from tidegate.plugin.shared.environment import PREFIX, SETTINGS

ROOT = Path(__file__).resolve().parents[2]
KUBERNETES = ROOT / "deploy/kubernetes"
VARIANTS = {"emptyDir": ("values.yaml",), "claim": ("values.yaml", "values-claim.yaml")}
MOUNTS = "/tidegate/"
CONF_PREFIX = "PULSAR_PREFIX_"
CHART_VARIABLE = "TIDEGATE_TEST_PULSAR_CHART"
SCHEMA_VERSION = "1.33"  # of Kubernetes: the first whose native sidecars are stable
MONITORS = {"monitoring.coreos.com/v1", "operator.victoriametrics.com/v1beta1"}
"""Not Kubernetes' own."""
TOKEN = "a-long-random-word"  # noqa: S105
OF_FS_GROUP = 0o2777
"""The mode that Kubernetes gives the folder of an emptyDir in a pod with fsGroup."""

Values = dict[str, Any]


def values(variant: str) -> Values:
    """The files as Helm merges them: maps by key, anything else as a whole."""
    merged: Values = {}
    for name in VARIANTS[variant]:
        merged = _merged(merged, yaml.safe_load((KUBERNETES / name).read_text(encoding="utf-8")))
    return merged


def _merged(under: Values, over: Values) -> Values:
    both = {
        key: _merged(under[key], over[key])
        for key in under.keys() & over.keys()
        if isinstance(under[key], dict) and isinstance(over[key], dict)
    }
    return {**under, **over, **both}


@pytest.fixture(params=VARIANTS)
def broker(request: pytest.FixtureRequest) -> Values:
    """The part ``broker`` of the values, in each variant."""
    found: Values = values(request.param)["broker"]
    return found


def containers(broker: Values) -> tuple[Values, Values]:
    """The step that lays the files, and the daemon."""
    files, daemon = broker["initContainers"]
    return files, daemon


def environment(container: Values) -> dict[str, str]:
    return {one["name"]: one["value"] for one in container["env"]}


def conf_keys(broker: Values) -> dict[str, str]:
    """The keys that come into broker.conf, as the image's start script takes them from the environment."""
    return {
        name.removeprefix(CONF_PREFIX): value
        for name, value in broker["configData"].items()
        if name.startswith(CONF_PREFIX)
    }


def mounts(container: Values) -> dict[str, str]:
    """The volume of each path."""
    return {one["mountPath"]: one["name"] for one in container["volumeMounts"]}


def test_the_shim_and_pulsar_know_each_setting(broker: Values) -> None:
    source = (ROOT / "plugin/shim/src/main/java/tidegate/pulsar/ShimConfig.java").read_text(encoding="utf-8")
    of_shim = set(re.findall(r'= "(tidegate\w+)"', source))
    assert len(of_shim) > 10
    of_pulsar = {
        broker_keys.TRACKER_KEY,
        broker_keys.ACK_RANGES_KEY,
        broker_keys.ACK_LONG_ARRAY_KEY,
        servlets.SERVLETS_KEY,
        servlets.DIRECTORY_KEY,
    }
    keys = conf_keys(broker)
    assert keys.keys() <= of_shim | of_pulsar
    assert keys[broker_keys.TRACKER_KEY] == broker_keys.TRACKER_FACTORY
    assert keys[servlets.SERVLETS_KEY] == SERVLET
    others = broker["configData"].keys() - {CONF_PREFIX + key for key in keys}
    assert others == {"PULSAR_EXTRA_CLASSPATH"}
    assert all(isinstance(value, str) for value in broker["configData"].values()), "a ConfigMap has texts"


def test_the_daemon_takes_its_settings(broker: Values, monkeypatch: pytest.MonkeyPatch) -> None:
    _, daemon = containers(broker)
    given = environment(daemon)
    assert given.keys() <= {PREFIX + name.upper() for name in SETTINGS}
    for name in os.environ:
        if name.startswith(PREFIX):
            monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    settings = load_settings({})
    assert str(settings.socket) == conf_keys(broker)[broker_keys.SOCKET_KEY]
    # The mounts are open to all, and the daemon refuses such folders.
    assert not {str(settings.socket.parent), str(settings.data)} & mounts(daemon).keys()


def test_each_side_has_the_files_that_it_names(broker: Values) -> None:
    files, daemon = containers(broker)
    volumes = {one["name"]: one for one in broker["extraVolumes"]}
    of_broker = {one["mountPath"]: one for one in broker["extraVolumeMounts"]}
    used = {*mounts(files).values(), *mounts(daemon).values(), *(one["name"] for one in of_broker.values())}
    assert used == volumes.keys()
    for path in (
        broker["configData"]["PULSAR_EXTRA_CLASSPATH"],
        conf_keys(broker)[servlets.DIRECTORY_KEY] + "/",
        conf_keys(broker)[broker_keys.SOCKET_KEY],
    ):
        assert any(path.startswith(f"{mount}/") for mount in of_broker), path
    assert all(one["readOnly"] for one in of_broker.values()), "the broker writes to none of them"
    # A socket needs no disk, and a token is on none.
    for name in ("tidegate-run", "tidegate-private"):
        assert volumes[name]["emptyDir"]["medium"] == "Memory"
    assert volumes["tidegate-lib"]["name"] not in mounts(daemon).values(), (
        "the broker's code is not the daemon's"
    )
    assert volumes["tidegate-token"]["name"] not in mounts(daemon).values()


def test_no_container_has_more_rights_than_it_needs(broker: Values) -> None:
    for container in containers(broker):
        context = container["securityContext"]
        assert context["runAsNonRoot"] is True
        assert context["runAsUser"] > 0
        assert context["readOnlyRootFilesystem"] is True
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert "memory" in container["resources"]["limits"]
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}
    files, daemon = containers(broker)
    assert files["securityContext"] == daemon["securityContext"], "one user, or the daemon could not read"
    assert "restartPolicy" not in files
    assert daemon["restartPolicy"] == "Always"


def test_the_broker_may_take_its_time_and_the_daemon_too(broker: Values, distribution: Path) -> None:
    conf = (distribution / "conf/broker.conf").read_text(encoding="utf-8")
    (of_broker_ms,) = re.findall(r"^brokerShutdownTimeoutMs=(\d+)$", conf, re.MULTILINE)
    daemon_s = load_settings({"data": "d"}).shutdown_seconds
    assert broker["gracePeriod"] >= int(of_broker_ms) / 1_000 + daemon_s


def test_the_policy_leaves_all_ports_open_but_the_daemon_s(broker: Values) -> None:
    _, daemon = containers(broker)
    (port,) = (one["containerPort"] for one in daemon["ports"])
    assert environment(daemon)["TIDEGATE_HTTP"].endswith(f":{port}")
    policy, _ = values("emptyDir")["extraDeploy"]
    for_all, for_some = policy["spec"]["ingress"]
    assert "from" not in for_all
    ranges = sorted((one["port"], one["endPort"]) for one in for_all["ports"])
    assert ranges == [(1, port - 1), (port + 1, 65_535)]
    assert [one["port"] for one in for_some["ports"]] == [port]
    assert for_some["from"]


class Pod(NamedTuple):
    """The folders of a pod, below ``folder`` instead of the root, with the values' paths changed alike."""

    folder: Path
    broker: Values

    def path(self, text: str) -> str:
        return text.replace(MOUNTS, f"{self.folder}/")

    def lay_files(self) -> None:
        """Run the step as its shell does."""
        files, _ = containers(self.broker)
        (script,) = files["args"]
        done = subprocess.run(
            [*files["command"], self.path(script)],
            env={"PATH": f"{self.folder}/bin:/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr

    @contextmanager
    def daemon(self) -> Iterator[str]:
        """The daemon with the values' settings, at its address instead of all."""
        _, daemon = containers(self.broker)
        (port,) = free_ports(1)
        given = {name: self.path(value) for name, value in environment(daemon).items()}
        given["TIDEGATE_HTTP"] = f"{LOOPBACK}:{port}"
        program, *arguments = daemon["command"]
        assert program == "tidegate"
        with (self.folder / "daemon.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tidegate.plugin.cli", *arguments],
                env=without_settings(os.environ) | given,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            try:
                yield f"http://{LOOPBACK}:{port}"
                assert process.poll() is None, (self.folder / "daemon.log").read_text("utf-8")
            finally:
                process.terminate()
                process.wait(60)
        assert process.returncode == 0


@pytest.fixture
def pod() -> Iterator[Pod]:
    """A pod as Kubernetes prepares it; in a short path, for the socket."""
    broker: Values = values("emptyDir")["broker"]
    with tempfile.TemporaryDirectory(prefix="tg-") as short:
        pod = Pod(Path(short), broker)
        files, daemon = containers(broker)
        for mount in {**mounts(files), **mounts(daemon)}:
            folder = Path(pod.path(f"{mount}/"))
            folder.mkdir()
            folder.chmod(OF_FS_GROUP)
        token = pod.folder / "token/token"
        token.write_text(TOKEN, encoding="utf-8")
        token.chmod(0o440)
        program = pod.folder / "bin/tidegate"
        program.parent.mkdir()
        program.write_text(
            f'#!/bin/sh\nexec "{sys.executable}" -m tidegate.plugin.cli "$@"\n', encoding="utf-8"
        )
        program.chmod(0o755)
        yield pod


def answers(url: str, path: str, **headers: str) -> int:
    try:
        return httpx.get(url + path, headers=headers, timeout=5).status_code
    except httpx.TransportError:
        return 0


def test_the_step_lays_the_files_also_in_a_pod_that_begins_again(pod: Pod) -> None:
    for _ in range(2):
        pod.lay_files()
        laid = {path.name: path for path in (pod.folder / "lib").iterdir()}
        assert laid.keys() == {JAR_NAME, NAR_NAME}
        assert laid[JAR_NAME].read_bytes() == shim_jar()
        assert laid[NAR_NAME].read_bytes() == servlet_nar()
        assert Path(pod.path(pod.broker["configData"]["PULSAR_EXTRA_CLASSPATH"])) == laid[JAR_NAME]
        token = pod.folder / "private/token"
        assert (token.read_text(encoding="utf-8"), token.stat().st_mode & 0o777) == (TOKEN, 0o600)


def test_the_daemon_answers_the_probes_and_to_nobody_else(pod: Pod) -> None:
    pod.lay_files()
    _, container = containers(pod.broker)
    paths = {name: container[name]["httpGet"]["path"] for name in ("startupProbe", "livenessProbe")}
    for name in paths:
        assert container[name]["httpGet"]["port"] in {one["name"] for one in container["ports"]}
    with pod.daemon() as url:
        for path in paths.values():
            wait_until(lambda path=path: answers(url, path) == 200, path)  # type: ignore[misc]
        assert answers(url, "/metrics") == 401
        assert answers(url, "/metrics", Authorization=f"Bearer {TOKEN}") == 200
        assert Path(pod.path(environment(container)["TIDEGATE_SOCKET"])).is_socket()


@pytest.mark.broker
def test_a_broker_with_these_settings_delays_by_the_daemon(
    pod: Pod, distribution: Path, tmp_path: Path
) -> None:
    pod.lay_files()
    conf = {key: pod.path(f"{value}/").rstrip("/") for key, value in conf_keys(pod.broker).items()}
    conf["narExtractionDirectory"] = str(tmp_path / "nar")
    jar = Path(pod.path(pod.broker["configData"]["PULSAR_EXTRA_CLASSPATH"]))
    with pod.daemon() as url:
        wait_until(lambda: answers(url, "/readyz") == 200, "the daemon is ready")
        with Broker(distribution, tmp_path / "broker", conf=conf, extra_classpath=[jar]) as broker:
            web = Web(broker.admin_url)
            wait_until(
                lambda: "tidegate" in web.client.get("/tidegate/v1/status").text, "the servlet answers"
            )
            answer = web.client.get("/tidegate/v1/status")
            web.close()
            assert answer.is_success, answer.text
            token = {"Authorization": f"Bearer {TOKEN}"}
            status = httpx.get(f"{url}/status", headers=token, timeout=10).json()
            assert len(status["brokers"]) == 1, status


def test_shim_says_where_its_files_are_and_what_is_wrong(tmp_path: Path) -> None:
    def shim(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tidegate.plugin.cli", "shim", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    done = shim(str(tmp_path))
    assert done.stdout.splitlines() == [str(tmp_path / JAR_NAME), str(tmp_path / NAR_NAME)]
    assert {path.name for path in tmp_path.iterdir()} == {JAR_NAME, NAR_NAME}
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o644}
    failed = shim(str(tmp_path / "missing"))
    assert (failed.returncode, failed.stdout) == (1, "")
    (line,) = failed.stderr.splitlines()
    assert f"cannot write {tmp_path}/missing/{JAR_NAME}: No such file or directory" in line
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / JAR_NAME).mkdir()
    assert shim(str(tmp_path / "taken")).returncode == 1
    assert [path.name for path in (tmp_path / "taken").iterdir()] == [JAR_NAME], "nothing is left over"


# Helm and the schemas.


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pulsar's chart without the charts that it depends on, which are fetched from elsewhere."""
    given = os.environ.get(CHART_VARIABLE)
    if given is None:
        pytest.skip(f"no Helm chart of Pulsar: {CHART_VARIABLE} names none")
    if shutil.which("helm") is None:
        pytest.skip("no helm here")
    copy = tmp_path_factory.mktemp("chart") / "pulsar"
    shutil.copytree(given, copy)
    about = yaml.safe_load((copy / "Chart.yaml").read_text(encoding="utf-8"))
    about.pop("dependencies", None)
    (copy / "Chart.yaml").write_text(yaml.safe_dump(about), encoding="utf-8")
    return copy


def rendered(chart: Path, variant: str, *options: str) -> list[Values]:
    command = ["helm", "template", "mine", str(chart), "--namespace", "pulsar", "--kube-version", "1.33.0"]
    for name in VARIANTS[variant]:
        command += ["--values", str(KUBERNETES / name)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one is not None]


def the(objects: list[Values], kind: str, name: str) -> Values:
    (found,) = (one for one in objects if (one["kind"], one["metadata"]["name"]) == (kind, name))
    return found


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_chart_makes_a_sidecar_of_it(chart: Path, variant: str) -> None:
    objects = rendered(chart, variant)
    pod = the(objects, "StatefulSet", "mine-pulsar-broker")["spec"]["template"]
    wanted = values(variant)["broker"]
    names = [one["name"] for one in pod["spec"]["initContainers"]]
    assert names[-2:] == ["tidegate-files", "tidegate"]
    assert len(names) > 2, "after the chart's own, which wait for the metadata store and the bookies"
    assert pod["spec"]["initContainers"][-2:] == wanted["initContainers"]
    (container,) = pod["spec"]["containers"]
    assert all(one in container["volumeMounts"] for one in wanted["extraVolumeMounts"])
    assert all(one in pod["spec"]["volumes"] for one in wanted["extraVolumes"])
    assert pod["spec"]["terminationGracePeriodSeconds"] == wanted["gracePeriod"]
    (config,) = (one["configMapRef"]["name"] for one in container["envFrom"])
    data = the(objects, "ConfigMap", config)["data"]
    assert wanted["configData"].items() <= data.items()
    labels = pod["metadata"]["labels"]
    policy = the(objects, "NetworkPolicy", "mine-pulsar-tidegate")
    monitor = the(objects, "VMPodScrape", "mine-pulsar-tidegate")
    for one, selector in ((policy, "podSelector"), (monitor, "selector")):
        chosen = one["spec"][selector]["matchLabels"]
        assert chosen.items() <= labels.items()
        assert chosen["component"] == "broker"
        assert one["metadata"]["namespace"] == "pulsar"


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("victoria-metrics-k8s-stack.enabled=true", {"NetworkPolicy", "VMPodScrape"}),
        ("victoria-metrics-k8s-stack.enabled=false", {"NetworkPolicy", "PodMonitor"}),
        ("broker.podMonitor.enabled=false", {"NetworkPolicy"}),
    ],
)
def test_the_monitor_is_of_the_chart_s_own_kind(chart: Path, setting: str, expected: set[str]) -> None:
    objects = rendered(chart, "emptyDir", "--set", setting)
    ours = [one for one in objects if one["metadata"]["name"] == "mine-pulsar-tidegate"]
    assert {one["kind"] for one in ours} == expected
    for one in ours:
        if one["kind"] == "NetworkPolicy":
            continue
        theirs = [other for other in objects if other["kind"] == one["kind"] and other not in ours]
        assert {one["apiVersion"]} == {other["apiVersion"] for other in theirs}
        fields = {field for other in theirs for field in other["spec"]["podMetricsEndpoints"][0]}
        assert one["spec"]["podMetricsEndpoints"][0].keys() <= fields | {"authorization"}


def validate(one: Mapping[str, Any]) -> None:
    """Raises the package's error for anything that Kubernetes does not know."""
    checker = pytest.importorskip("kubernetes_validate", reason="no kubernetes-validate here")
    checker.validate(dict(one), SCHEMA_VERSION, strict=True)


def test_kubernetes_knows_each_field(broker: Values) -> None:
    main = {"name": "broker", "image": "pulsar", "volumeMounts": broker["extraVolumeMounts"]}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "broker"},
        "spec": {
            "initContainers": broker["initContainers"],
            "containers": [main],
            "volumes": broker["extraVolumes"],
        },
    }
    validate(pod)
    policy, _ = values("emptyDir")["extraDeploy"]
    validate(policy)


def test_the_schemas_refuse_what_kubernetes_does_not_know() -> None:
    container = {"name": "c", "image": "i", "restartPolice": "Always"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container]}}
    with pytest.raises(Exception, match="restartPolice"):
        validate(pod)


@pytest.mark.parametrize("variant", VARIANTS)
def test_kubernetes_knows_each_field_of_the_whole_release(chart: Path, variant: str) -> None:
    checked = 0
    for one in rendered(chart, variant):
        if one["apiVersion"] not in MONITORS:
            validate(one)
            checked += 1
    assert checked > 20
