"""The jars of systems in Java, by Maven, and command lines that run their classes. Runs in the tests' process.

Each directory in `java/` names the jars of one system in its `pom.xml`; the Java sources beside it are compiled against them.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests import toolchains

SOURCES = Path(__file__).resolve().parent / "java"
LOGGER = "-Dorg.slf4j.simpleLogger"


def java_command(system: str, main_class: str, *arguments: str, options: tuple[str, ...] = ()) -> list[str]:
    """Return the command line of a class of a system, or of the tests' sources beside its `pom.xml`.

    :param system: the directory in `java/`. :param options: of the JVM, after the usual ones.
    """
    product = _product(system)
    settings = (f"{LOGGER}.defaultLogLevel=warn", f"{LOGGER}.showDateTime=true")
    return [
        "java",
        *toolchains.JVM_OPTIONS,
        *settings,
        *options,
        "-cp",
        f"{product}:{product}/*",
        main_class,
        *arguments,
    ]


def _product(system: str) -> Path:
    toolchains.require_command("java", "default-jdk-headless")
    javac = toolchains.require_command("javac", "default-jdk-headless")
    maven = toolchains.require_command("mvn", "maven")
    directory = SOURCES / system
    pom, sources = directory / "pom.xml", sorted(directory.glob("*.java"))

    def build(output: Path) -> None:
        toolchains.run_maven(
            [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={output}"]
        )
        if sources:
            command = [javac, "-nowarn", "-cp", f"{output}/*", "-d", str(output), *map(str, sources)]
            compiled = subprocess.run(command, capture_output=True, text=True)
            assert compiled.returncode == 0, compiled.stderr

    return toolchains.make_product(f"ecosystem-{system}", [pom, *sources], build)
