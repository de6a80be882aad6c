"""Pulsar's distribution: fetched by a stand-in for Maven, unpacked once, whole or not at all."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
from pathlib import Path

import pytest

from tidegate.plugin.errors import SetupError
from tidegate.plugin.local import distribution as dist
from tidegate.plugin.local.distribution import (
    Distribution,
    default_cache_dir,
    fetch,
    home_of,
    maven_repository,
)

# The stand-in's way of copying the artifact; {source} is the archive, {log} lists the calls.
MAVEN = """#!/bin/sh
case "$1" in -version) echo "Apache Maven 3.8.7"; exit 0;; esac
echo "$@" >> {log}
{failure}
for argument; do
  case "$argument" in
    -DoutputDirectory=*) mkdir -p "${{argument#*=}}" && cp {source} "${{argument#*=}}/";;
  esac
done
"""


@dataclasses.dataclass
class Machine:
    """A machine with a JDK, a stand-in for Maven, an archive that it serves, and an empty cache."""

    path: Path
    distribution: Distribution
    environment: dict[str, str]

    @property
    def cache(self) -> Path:
        return self.path / "cache"

    @property
    def archive(self) -> Path:
        return self.path / "central" / self.distribution.file_name

    @property
    def stored(self) -> Path:
        return maven_repository(self.environment) / self.distribution.repository_directory / self.archive.name

    def maven(self, failure: str = "") -> None:
        script = self.path / "bin" / "mvn"
        script.write_text(MAVEN.format(log=self.path / "maven-calls", source=self.archive, failure=failure))
        script.chmod(0o755)

    def calls(self) -> list[str]:
        log = self.path / "maven-calls"
        return log.read_text().splitlines() if log.exists() else []

    def fetch(self, report: dist.Report = lambda _what, _done, _total: None) -> Path:
        return fetch(self.cache, self.environment, report, self.distribution)


def archive_bytes() -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        for name, body, mode in [
            ("bin/pulsar", b"#!/bin/sh\n", 0o755),
            ("conf/broker.conf", b"a=1\n", 0o644),
        ]:
            member = tarfile.TarInfo(f"apache-pulsar-0.0.1/{name}")
            member.size, member.mode = len(body), mode
            tar.addfile(member, io.BytesIO(body))
    return content.getvalue()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    content = archive_bytes()
    distribution = Distribution(
        group="org.example.pulsar",
        artifact="server",
        version="0.0.1",
        classifier="bin",
        sha256=hashlib.sha256(content).hexdigest(),
        size_bytes=len(content),
        unpacked_bytes=1_000,
        directory_name="apache-pulsar-0.0.1",
    )
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "HOME": str(tmp_path / "user")}
    for name in ("MAVEN_ARGS", "MAVEN_OPTS"):
        environment.pop(name, None)
    machine = Machine(tmp_path, distribution, environment)
    (tmp_path / "bin").mkdir()
    machine.archive.parent.mkdir()
    machine.archive.write_bytes(content)
    machine.maven()
    return machine


def test_it_is_fetched_checked_unpacked_once(machine: Machine) -> None:
    home = machine.fetch()
    assert home == machine.cache / "pulsar" / "apache-pulsar-0.0.1"
    assert (home / "conf" / "broker.conf").read_bytes() == b"a=1\n"
    assert os.access(home / "bin" / "pulsar", os.X_OK)
    assert "-Dartifact=org.example.pulsar:server:0.0.1:tar.gz:bin" in machine.calls()[0]
    assert machine.fetch() == home
    assert len(machine.calls()) == 1
    assert {path.name for path in home.parent.iterdir()} == {home.name, ".lock", "maven.log"}


def test_progress_is_reported_to_the_end(machine: Machine) -> None:
    reports: list[tuple[str, int, int]] = []
    machine.fetch(lambda *report: reports.append(report))
    size = machine.distribution.size_bytes
    name = machine.distribution.file_name
    assert (f"fetching {name}", size, size) in reports
    assert reports[-1] == (f"unpacking {name}", size, size)


def test_the_growing_file_is_watched(machine: Machine) -> None:
    seen = threading.Event()
    part = machine.stored.with_name(machine.stored.name + ".part")
    part.parent.mkdir(parents=True)
    part.write_bytes(b"x" * 7)
    fifo = machine.path / "go"
    os.mkfifo(fifo)
    machine.maven(failure=f"read line < {fifo}")

    def report(what: str, done: int, _total: int) -> None:
        if what.startswith("fetching") and done == 7 and not seen.is_set():
            seen.set()
            fifo.write_text("go on\n")

    machine.fetch(report)
    assert seen.is_set()


def test_an_archive_that_maven_has_already_is_used_without_asking(machine: Machine) -> None:
    machine.stored.parent.mkdir(parents=True)
    shutil.copy(machine.archive, machine.stored)
    machine.fetch()
    assert machine.calls() == []


def test_a_wrong_archive_is_never_unpacked(machine: Machine) -> None:
    machine.archive.write_bytes(b"not what was pinned")
    with pytest.raises(SetupError, match="its SHA-256 differs"):
        machine.fetch()
    assert not home_of(machine.cache, machine.distribution).exists()
    machine.archive.write_bytes(archive_bytes())
    machine.distribution = dataclasses.replace(
        machine.distribution, sha256=hashlib.sha256(machine.archive.read_bytes()).hexdigest()
    )
    machine.fetch()


def test_a_failure_of_maven_is_one_line_with_its_reason(machine: Machine) -> None:
    machine.maven(failure="echo '[ERROR] Unknown host'; echo '[ERROR] more'; exit 1")
    with pytest.raises(SetupError) as raised:
        machine.fetch()
    assert "could not fetch Pulsar 0.0.1: Unknown host; check the network" in str(raised.value)
    assert "\n" not in str(raised.value)
    machine.maven()
    machine.fetch()


def test_behind_a_proxy_that_maven_does_not_know_the_line_says_where_to_name_it(machine: Machine) -> None:
    machine.maven(failure="echo '[ERROR] Unknown host'; exit 1")
    machine.environment["HTTPS_PROXY"] = "http://somebody:secret@proxy.example:3128"
    with pytest.raises(SetupError) as raised:
        machine.fetch()
    said = "Unknown host; Maven does not read HTTPS_PROXY: name the proxy in ~/.m2/settings.xml, then"
    assert said in str(raised.value)
    assert "secret" not in str(raised.value)
    settings = Path(machine.environment["HOME"]) / ".m2" / "settings.xml"
    settings.parent.mkdir(parents=True)
    settings.write_text("<settings><proxies><proxy><host>proxy.example</host></proxy></proxies></settings>")
    with pytest.raises(SetupError, match="check the network and Maven's mirrors"):
        machine.fetch()


@pytest.mark.parametrize("cut", ["while fetching", "while unpacking"])
def test_what_was_interrupted_goes_on(machine: Machine, cut: str) -> None:
    class Interrupted(BaseException):
        pass

    def report(what: str, _done: int, _total: int) -> None:
        if what.startswith(cut.removeprefix("while ")):
            raise Interrupted

    if cut == "while fetching":
        machine.maven(failure="exec sleep 60")
    with pytest.raises(Interrupted):
        machine.fetch(report)
    home = home_of(machine.cache, machine.distribution)
    assert not home.exists()
    machine.maven()
    calls = len(machine.calls())
    assert machine.fetch() == home
    # A whole archive is not asked for again.
    assert len(machine.calls()) == calls + (cut == "while fetching")
    assert [path for path in home.parent.iterdir() if path.name.startswith(".unpacking")] == []


def test_two_at_once_fetch_once(machine: Machine) -> None:
    threads = [threading.Thread(target=machine.fetch) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(machine.calls()) == 1
    assert home_of(machine.cache, machine.distribution).is_dir()


@pytest.mark.parametrize(("missing", "said"), [("java", "no java found"), ("mvn", "no mvn found")])
def test_a_missing_tool_is_said_in_one_line(machine: Machine, missing: str, said: str) -> None:
    tools = machine.path / "tools"
    tools.mkdir()
    for name in {"sh", "java", "javac", "mvn", "mkdir", "cp"} - {missing}:
        found = shutil.which(name, path=machine.environment["PATH"])
        assert found is not None
        (tools / name).symlink_to(found)
    machine.environment["PATH"] = str(tools)
    machine.environment.pop("JAVA_HOME", None)
    with pytest.raises(SetupError, match=f"{said}: install"):
        machine.fetch()


def test_a_full_disk_is_said_before_anything_is_fetched(machine: Machine) -> None:
    machine.distribution = dataclasses.replace(machine.distribution, unpacked_bytes=2**62)
    with pytest.raises(SetupError, match=r"MiB of disk left and .* MiB are needed: free some"):
        machine.fetch()
    assert machine.calls() == []


def test_a_cache_that_cannot_be_written_is_named(machine: Machine) -> None:
    machine.cache.write_bytes(b"in the way")
    with pytest.raises(SetupError, match="set TIDEGATE_CACHE_DIR to another directory"):
        machine.fetch()


@pytest.mark.parametrize("name", ["with space", "a:b", 'a"b', "a%b"])
def test_a_place_where_pulsar_could_not_start_is_said_first(machine: Machine, name: str) -> None:
    said = "in it, which Pulsar's start script cannot take: set TIDEGATE_CACHE_DIR"
    with pytest.raises(SetupError, match=said):
        fetch(machine.cache / name, machine.environment, distribution=machine.distribution)
    assert not machine.cache.exists()
    assert machine.calls() == []


def test_where_the_cache_and_mavens_repository_are(tmp_path: Path) -> None:
    checkout = Path(dist.__file__).resolve().parents[2]
    assert default_cache_dir({"TIDEGATE_CACHE_DIR": str(tmp_path)}) == tmp_path
    assert default_cache_dir({}) == checkout / ".cache"
    user = tmp_path / "user"
    (user / ".m2").mkdir(parents=True)
    assert maven_repository({"HOME": str(user)}) == user / ".m2" / "repository"
    settings = user / ".m2" / "settings.xml"
    settings.write_text("<settings xmlns='x'><localRepository>${user.home}/jars</localRepository></settings>")
    assert maven_repository({"HOME": str(user)}) == user / "jars"
    settings.write_text("<settings>")
    assert maven_repository({"HOME": str(user)}) == user / ".m2" / "repository"
    assert maven_repository({"HOME": str(user), "MAVEN_OPTS": "-Xmx1g -Dmaven.repo.local=/r"}) == Path("/r")


def test_setup_prints_where_pulsar_is(distribution: Path) -> None:
    command = [sys.executable, "-m", "tidegate.plugin.commands.setup"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()) == distribution


def test_setup_that_cannot_is_one_line_and_leaves_no_maven_behind(machine: Machine) -> None:
    environment = {**machine.environment, "TIDEGATE_CACHE_DIR": str(machine.cache)}
    command = [sys.executable, "-m", "tidegate.plugin.commands.setup"]
    machine.maven(failure="echo '[ERROR] no network'; exit 1")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("tidegate: Maven could not fetch Pulsar 4.0.8: no network")

    started = machine.path / "started"
    machine.maven(failure=f"echo $$ > {started}.tmp; mv {started}.tmp {started}; exec sleep 60")
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    # Progress reaches the terminal only when Maven runs: that line is what to wait for.
    assert process.stderr is not None
    assert "fetching" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    assert "interrupted; run it again to go on" in process.communicate(timeout=60)[1]
    assert process.returncode == 130
    with contextlib.suppress(FileNotFoundError), pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), 0)
