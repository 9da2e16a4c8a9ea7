"""MirrorMaker 2's own classes in one JVM (java/MirrorClasses.java), of the version that the test names."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from tests import toolchains
from tests.answering_jvm import AnsweringJvm
from tests.toolchains import make_product, require_command, run_maven

DIRECTORY = Path(__file__).parent / "java"
VERSIONS = ("4.3.0", "3.9.1")


def mirror_maker_jars(version: str) -> Path:
    """The directory of MirrorMaker 2's jars and this test's class (35 MB)."""
    require_command("java", "default-jdk-headless")
    javac = require_command("javac", "default-jdk-headless")
    maven = require_command("mvn", "maven")
    pom, source = DIRECTORY / "pom.xml", DIRECTORY / "MirrorClasses.java"

    def build(output: Path) -> None:
        run_maven(
            [maven, "-q", "-B", "-f", str(pom), f"-Dkafka.version={version}", "dependency:copy-dependencies",
             f"-DoutputDirectory={output}"],
        )  # fmt: skip
        subprocess.run([javac, "-nowarn", "-cp", f"{output}/*", "-d", str(output), str(source)], check=True)

    return make_product(f"mirror-maker-{version}", [pom, source], build)


class MirrorMaker:
    """A JVM that answers lines; a context manager. :param errors: the file of what it complains of."""

    def __init__(self, version: str, errors: Path) -> None:
        jars = mirror_maker_jars(version)
        main = "org.apache.kafka.connect.mirror.MirrorClasses"
        self._jvm = AnsweringJvm(["java", *toolchains.JVM_OPTIONS, "-cp", f"{jars}:{jars}/*", main], errors)

    def __enter__(self) -> MirrorMaker:
        self._jvm.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._jvm.__exit__(kind, error, traceback)

    def ask(self, words: Sequence[object]) -> str:
        """The answer to a line. Raises AssertionError with what the JVM said if it ended, or did not answer in time."""
        return self._jvm.ask("\t".join(map(str, words)))
