"""The one build step that pyproject.toml cannot say: a wheel without its made files is refused."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.errors import SetupError

SHIM_JAR = Path("plugin", "jars", "tidegate-pulsar-shim.jar")
MANUAL = Path("build", "man", "tidegate.1")


class BuildWithShim(build_py):
    """``tidegate attach`` copies the jar out of the installed package: it must be in the wheel."""

    def run(self) -> None:
        """Refuse a wheel without the jar; an editable install may be made before the jar is."""
        if not self.editable_mode and not SHIM_JAR.is_file():
            raise SetupError(f"{SHIM_JAR} is missing, so the wheel could attach no broker: run `make wheel`")
        if not self.editable_mode and not MANUAL.is_file():
            raise SetupError(f"{MANUAL} is missing, so the wheel would have no manual: run `make wheel`")
        super().run()


setup(cmdclass={"build_py": BuildWithShim})
