"""A Pulsar put together from its jars: the lock, the conf files, and which home is meant."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tidegate.plugin.errors import SetupError
from tidegate.plugin.local import assembled, toolchain
from tidegate.plugin.local.distribution import PULSAR


def test_every_lock_can_be_read_and_names_each_jar_once() -> None:
    assert assembled.versions()[0] == PULSAR.version
    assert {"4.2.4", "5.0.1"} <= set(assembled.versions())
    for version in assembled.versions()[1:]:
        text = (Path(assembled.__file__).parent / "homes" / f"pulsar-{version}.lock").read_text("utf-8")
        jars = assembled.read_lock(text)
        assert len({jar.name_in_home for jar in jars}) == len(jars)
        assert all(len(bytes.fromhex(jar.sha256)) == hashlib.sha256().digest_size for jar in jars)
        assert f"org.apache.pulsar-pulsar-broker-{version}.jar" in {jar.name_in_home for jar in jars}
        pom = ElementTree.fromstring(assembled.pom_of(jars, Path("/x & y")))  # noqa: S314
        assert len(pom.findall(".//{*}artifactItem")) == len(jars)


@pytest.mark.parametrize("version", assembled.versions()[1:])
def test_a_cluster_can_be_initialized_from_every_lock(version: str) -> None:
    """`pulsar initialize-cluster-metadata` needs them, a standalone does not."""
    text = (Path(assembled.__file__).parent / "homes" / f"pulsar-{version}.lock").read_text("utf-8")
    named = {jar.artifact for jar in assembled.read_lock(text)}
    assert {"distributedlog-common", "distributedlog-core", "distributedlog-protocol", "libthrift"} <= named


def test_a_line_that_is_no_jar_is_refused() -> None:
    with pytest.raises(ValueError, match="no jar in a line"):
        assembled.read_lock("group:artifact abc 7\n")


# A Maven that, like the real one, fails on a jar whose pom it cannot read whole: none of Central's is here.
_MAVEN = """#!/usr/bin/env python3
import sys
from pathlib import Path
from xml.etree import ElementTree

if sys.argv[1] == "-version":
    print("Apache Maven 3.8.7")
    sys.exit()
[repository] = [Path(one.partition("=")[2]) for one in sys.argv if one.startswith("-Dmaven.repo.local=")]
pom = ElementTree.parse(sys.argv[sys.argv.index("-f") + 1])
out = Path(pom.find(".//{*}outputDirectory").text)
for item in pom.iterfind(".//{*}artifactItem"):
    group, artifact, version = (item.find("{*}" + name).text for name in ("groupId", "artifactId", "version"))
    own = repository.joinpath(*group.split("."), artifact, version, f"{artifact}-{version}.pom")
    if not own.is_file() or ElementTree.parse(own).find(".//{*}parent") is not None:
        sys.exit(f"[ERROR] Failed to read artifact descriptor for {group}:{artifact}:jar:{version}")
    (out / f"{group}.{artifact}-{version}.jar").write_bytes(JAR)
"""


def test_jars_are_fetched_without_the_poms_that_central_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks, programs, cache = tmp_path / "locks", tmp_path / "programs", tmp_path / "cache"
    base = cache / "pulsar" / PULSAR.directory_name
    for directory in (locks, programs, base / "bin", base / "conf", base / "instances"):
        directory.mkdir(parents=True)
    for name in ("broker.conf", "standalone.conf", "log4j2.yaml", "bkenv.sh", "pulsar_env.sh"):
        (base / "conf" / name).write_text("clusterName=x\n")
    jar = b"the jar"
    (locks / "pulsar-5.7.7.lock").write_text(
        f"# a lock\norg.example:one:1.2 {hashlib.sha256(jar).hexdigest()} {len(jar)}\n"
    )
    maven = programs / "mvn"
    maven.write_text(_MAVEN.replace("JAR", repr(jar)))
    maven.chmod(0o755)
    monkeypatch.setattr(assembled, "_LOCKS", locks)
    environment = {
        **os.environ,
        "JAVA_HOME": str(_jdk(tmp_path / "java", 21)),
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "TIDEGATE_PULSAR": "5.7.7",
    }
    home = assembled.fetch_home(cache, environment)
    assert home == cache / "pulsar" / "assembled-pulsar-5.7.7"
    assert [one.name for one in (home / "lib").iterdir()] == ["org.example-one-1.2.jar"]
    assert {one.name for one in home.parent.iterdir()} == {base.name, home.name, ".lock", "maven.log"}


def test_keys_with_other_defaults_leave_a_conf_file() -> None:
    text = "clusterName=x\n# numIOThreads=1\nnumIOThreads=4\ndispatcherMaxReadBatchSize = 100\n"
    assert assembled.conf_of(text) == "clusterName=x\n# numIOThreads=1\n"


def test_log_lines_have_what_pulsar_5_logs_beside_the_message() -> None:
    text = 'Pattern: "%-5level %logger{36} - %msg%n"\nPattern: "%logger{1} - %msg%n"\n'
    assert assembled.log_conf_of(text).count("%msg %X%n") == 2


def test_the_environment_chooses_the_pulsar(tmp_path: Path) -> None:
    assert assembled.pulsar_home({}, tmp_path).name == PULSAR.directory_name
    assert assembled.pulsar_home({"TIDEGATE_PULSAR": PULSAR.version}, tmp_path).name == PULSAR.directory_name
    assert assembled.pulsar_home({"TIDEGATE_PULSAR": "5.0.1"}, tmp_path).name == "assembled-pulsar-5.0.1"
    with pytest.raises(SetupError, match=r"'5\.9\.9' cannot be set up: choose one of"):
        assembled.pulsar_home({"TIDEGATE_PULSAR": "5.9.9"}, tmp_path)


def test_the_newest_home_is_the_newest_that_is_there(tmp_path: Path) -> None:
    environment = {"TIDEGATE_CACHE_DIR": str(tmp_path)}
    assert assembled.newest_home(environment) is None
    for version in ("4.2.4", "5.0.1"):
        home = tmp_path / "pulsar" / f"assembled-pulsar-{version}"
        home.mkdir(parents=True)
        assert assembled.newest_home(environment) == home
    assert assembled.newest_home({**environment, "TIDEGATE_PULSAR": "4.2.4"}) == home
    assert assembled.newest_home({**environment, "TIDEGATE_PULSAR": "5.0.1"}) is None


def _jdk(root: Path, major: int) -> Path:
    home = root / f"jdk-{major}"
    (home / "bin").mkdir(parents=True)
    for name in ("java", "javac"):
        path = home / "bin" / name
        path.write_text(f"#!/bin/sh\necho 'openjdk version \"{major}.0.1\"' >&2\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return home


def test_a_newer_jdk_is_found_beside_the_usual_one(tmp_path: Path) -> None:
    usual = {"JAVA_HOME": str(_jdk(tmp_path / "usual", 17)), "PATH": os.environ["PATH"]}
    others = tmp_path / "others"
    assert isinstance(toolchain.find_jdk_of(21, usual, [others]), toolchain.Problem)
    for major in (25, 17, 21):
        _jdk(others, major)
    found = toolchain.find_jdk_of(21, usual, [others])
    assert isinstance(found, toolchain.Tool)
    assert found.version == (21,)
    kept = toolchain.find_jdk_of(17, usual, [others])
    assert isinstance(kept, toolchain.Tool)
    assert kept.path.parents[1] == Path(usual["JAVA_HOME"])
