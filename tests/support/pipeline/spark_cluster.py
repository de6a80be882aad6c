"""A real Spark cluster on loopback: a standalone master and two workers, each a process that one can kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
import pyspark

from tests.support.class_archives import spark_java
from tests.support.waiting import wait_until
from tidegate.plugin.local.process import free_ports

_HOME = Path(pyspark.__file__).parent
_LOOPBACK = "127.0.0.1"
_MEMORY = "768m"
_JAVA = spark_java()


class StandaloneSpark:
    """Master and workers; a context manager. Only processes started here are ever signalled."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self.folder = folder
        self._workers = workers
        self._port, self._web_port = free_ports(2)
        self.master_process: subprocess.Popen[bytes] | None = None
        self.worker_processes: list[subprocess.Popen[bytes]] = []

    @property
    def master(self) -> str:
        """The value of ``--master``."""
        return f"spark://{_LOOPBACK}:{self._port}"

    def __enter__(self) -> Self:
        try:
            self.master_process = self._start(
                "master.Master", "--port", str(self._port), "--webui-port", str(self._web_port), log="master"
            )
            wait_until(lambda: self._logged("master", "Starting Spark master"), "the master runs")
            for number in range(self._workers):
                self.start_worker(number)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in [*self.worker_processes, self.master_process]:
            if process is not None:
                _kill_tree(process)

    def start_worker(self, number: int) -> None:
        """One worker with one core."""
        name = f"worker-{number}"
        self.worker_processes.append(
            self._start(
                "worker.Worker", "--cores", "1", "--memory", _MEMORY, "--webui-port", "0",
                "--work-dir", str(self.folder / name), self.master, log=name,
            )
        )  # fmt: skip
        wait_until(lambda: self._logged(name, "Successfully registered with master"), f"{name} is registered")

    def kill_worker(self, number: int) -> None:
        """Kill -9 a worker with its executors and their Python processes."""
        _kill_tree(self.worker_processes[number])

    def conf(self) -> list[str]:
        """A job's settings besides the master: small executors, short time-outs."""
        settings = {
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.driver.memory": "512m",
            "spark.driver.host": _LOOPBACK,
            "spark.driver.bindAddress": _LOOPBACK,
            "spark.sql.shuffle.partitions": "4",
            "spark.executor.heartbeatInterval": "2s",
            "spark.driver.extraJavaOptions": _JAVA,
            "spark.executor.extraJavaOptions": _JAVA,
        }
        return [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]

    def _start(self, name: str, *arguments: str, log: str) -> subprocess.Popen[bytes]:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / f"{log}.log").open("ab") as output:
            return subprocess.Popen(
                [
                    str(_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}",
                    "--host", _LOOPBACK, *arguments,
                ],
                env={
                    **os.environ,
                    "SPARK_LOCAL_IP": _LOOPBACK,
                    "SPARK_DAEMON_MEMORY": "256m",
                    "SPARK_DAEMON_JAVA_OPTS": _JAVA,
                    "SPARK_NO_DAEMONIZE": "1",
                    "PYSPARK_PYTHON": sys.executable,
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )  # fmt: skip

    def _logged(self, log: str, words: str) -> bool:
        return words in (self.folder / f"{log}.log").read_text(errors="replace")


def _kill_tree(process: subprocess.Popen[bytes]) -> None:
    """The process and all below it: executors and their Python workers too."""
    try:
        below = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        below = []
    for pid in [*(one.pid for one in below), process.pid]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait(60)
