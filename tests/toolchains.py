"""What tests need beyond Python: jars by Maven, compiled Java, a Go program, npm packages, Debian's commands.

Owns `.build/` at the root of the repository: everything fetched or built here is kept there under a name that holds a
digest of its sources, so that a changed `pom.xml`, `go.mod` or program is built again and an unchanged one costs
nothing. Runs inside the test processes; several of them at once are kept apart by a lock file per product, and a
product appears by a rename, whole. What fetches from the network is tried again when it fails; there is one Maven at a
time, since two of them trip over each other in the repository of the user.

A missing tool skips the test that asked for it, and says so; with `CI=true` in the environment it fails instead,
because a proof that silently did not run is no proof.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from odradek.testing import Broker

REPOSITORY = Path(__file__).resolve().parent.parent
BUILD_DIRECTORY = REPOSITORY / ".build"
CLIENTS_DIRECTORY = Path(__file__).resolve().parent / "clients"

KAFKA_VERSION = "4.3.0"

LIBRDKAFKA_TESTS = (
    "0061-consumer_lag.cpp",
    "0098-consumer-txn.cpp",
    "0103-transactions.c",
    "0115-producer_auth.cpp",
    "0119-consumer_auth.cpp",
    "0129-fetch_aborted_msgs.c",
    "0135-sasl_credentials.cpp",
    "0137-barrier_batch_consume.c",
    "0142-reauthentication.c",
)
"""Those of librdkafka's own tests that use transactions or security, and a real broker. Not among them: 0055 measures
latencies, 0105 and 0158 use librdkafka's own broker, 0177 needs share groups."""

_LOG4J = f"-Dlog4j2.configurationFile={CLIENTS_DIRECTORY / 'java' / 'log4j2.properties'}"

#: A small JVM that starts quickly: these tools live for a second or two.
JVM_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")

_ARCHIVE_MAKER = "org.apache.kafka.tools.EndToEndLatency"
"""Loads what most tools load: a producer, a consumer and an administrator."""

_BUILD_TIMEOUT_S = 600
_FETCHES = 3
_BETWEEN_FETCHES_S = 3.0


def unavailable(reason: str) -> None:
    """Skip the running test because of `reason`; with `CI=true` fail it."""
    import pytest  # here: `make cluster` uses this module, and `make build` does not install pytest

    if os.environ.get("CI", "").lower() in ("1", "true", "yes"):
        pytest.fail(f"CI must run this test, but {reason}", pytrace=False)
    pytest.skip(reason)


def require_command(command: str, package: str) -> str:
    """Return the path of `command`; without it, skip or fail naming the Debian `package` that holds it."""
    path = shutil.which(command)
    if path is None:
        unavailable(f"`{command}` is not installed (deploy/debian/install-test-packages --nightly installs {package})")
    assert path is not None
    return path


def kafka_jars(version: str = KAFKA_VERSION) -> Path:
    """Return the directory of Kafka's broker, clients and tools of `version`, with all they depend on (55 MB)."""
    require_command("java", "default-jdk-headless")
    maven = require_command("mvn", "maven")
    pom = CLIENTS_DIRECTORY / "java" / "pom.xml"

    def copy_dependencies(directory: Path) -> None:
        run_maven(
            [maven, "-q", "-B", "-f", str(pom), f"-Dkafka.version={version}", "dependency:copy-dependencies",
             f"-DoutputDirectory={directory}"],
        )  # fmt: skip

    return make_product(f"kafka-{version}", [pom], copy_dependencies)


def zookeeper_jars() -> Path:
    """Return the directory of ZooKeeper's server and what it needs (7 MB). Needs Maven."""
    pom = CLIENTS_DIRECTORY / "zookeeper" / "pom.xml"

    def copy_dependencies(directory: Path) -> None:
        run_maven(["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={directory}"])

    return make_product("zookeeper", [pom], copy_dependencies)


def spark_kafka_jars() -> Path:
    """Return the directory of Spark's Kafka connector and what it needs beside PySpark's own jars."""
    require_command("java", "default-jdk-headless")
    maven = require_command("mvn", "maven")
    pom = CLIENTS_DIRECTORY / "spark" / "pom.xml"
    groups = "org.apache.spark,org.apache.kafka,org.apache.commons"

    def copy_dependencies(directory: Path) -> None:
        run_maven(
            [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DincludeGroupIds={groups}",
             f"-DoutputDirectory={directory}"],
        )  # fmt: skip

    return make_product("spark-kafka", [pom], copy_dependencies)


def spark_delta_jars() -> Path:
    """Return the directory of the jars with which Spark reads and changes Delta tables."""
    require_command("java", "default-jdk-headless")
    maven = require_command("mvn", "maven")
    pom = CLIENTS_DIRECTORY / "spark" / "delta" / "pom.xml"

    def copy_dependencies(directory: Path) -> None:
        run_maven(
            [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", "-DincludeGroupIds=io.delta",
             f"-DoutputDirectory={directory}"],
        )  # fmt: skip

    return make_product("spark-delta", [pom], copy_dependencies)


def java_classes() -> Path:
    """Return the directory of the classes compiled from `clients/java/*.java` against Kafka's jars."""
    jars = kafka_jars()
    javac = require_command("javac", "default-jdk-headless")
    sources = sorted((CLIENTS_DIRECTORY / "java").glob("*.java"))

    def compile_classes(directory: Path) -> None:
        _run([javac, "-nowarn", "-cp", f"{jars}/*", "-d", str(directory), *map(str, sources)])

    return make_product("java-classes", sources, compile_classes)


def java_command(main_class: str, *arguments: str, classes: bool = False, version: str = KAFKA_VERSION) -> list[str]:
    """Return the command line that runs `main_class` on Kafka's jars, and on the tests' classes if `classes`."""
    jars = kafka_jars(version)
    archive = _kafka_archive(jars) if version == KAFKA_VERSION else []
    # the jars are first, as they were in the JVM that made the archive
    class_path = f"{jars}/*:{java_classes()}" if classes else f"{jars}/*"
    return ["java", *JVM_OPTIONS, *archive, _LOG4J, "-cp", class_path, main_class, *arguments]


@cache
def _kafka_archive(jars: Path) -> list[str]:
    """The options of `class_archive` for Kafka's tools."""

    def load(option: str) -> None:
        with Broker(topics={"latency": 1}) as broker:
            arguments = ["--bootstrap-server", broker.bootstrap_servers, "--topic", "latency", "--num-records", "1"]
            arguments += ["--producer-acks", "1", "--record-size", "8"]
            _run(["java", *JVM_OPTIONS, option, _LOG4J, "-cp", f"{jars}/*", _ARCHIVE_MAKER, *arguments])

    return class_archive("kafka-classes", [jars.name, _LOG4J, *JVM_OPTIONS], load)


def class_archive(name: str, texts: Iterable[str], load: Callable[[str], None]) -> list[str]:
    """Return options of a JVM that takes its classes from an archive, which halves the CPU time of a short life.

    The archive is made once: `load(option)` runs a JVM that loads the classes, with `option`, and returns when that has ended.
    A JVM whose class path does not begin with that JVM's, or of another version of Java, does without the archive.

    :param texts: what the archive depends on beside Java, among them the names of the directories of jars.
    """
    java = Path(require_command("java", "default-jdk-headless")).resolve()
    status = java.stat()

    def build(directory: Path) -> None:
        load(f"-XX:ArchiveClassesAtExit={directory / 'classes.jsa'}")

    texts = [*texts, f"{java} {status.st_size} {status.st_mtime_ns}"]
    archive = make_product(name, [], build, texts) / "classes.jsa"
    if not archive.exists():  # it extends the archive of the JDK, which some installations do not have
        return []
    # a warning that the archive does not fit would be in the output of a tool
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:disable", "-Xlog:all=error:stderr"]


def run_java(
    main_class: str,
    *arguments: object,
    text: str | None = None,
    classes: bool = False,
    quiet: bool = False,
    timeout_s: float = 300,
) -> str:
    """Run `main_class` as `java_command` says, and return what it printed; it must succeed.

    :param text: its standard input. :param quiet: it must print no exception, either.
    """
    command = java_command(main_class, *map(str, arguments), classes=classes)
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=timeout_s)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output[-4000:]
    assert not quiet or "Exception" not in output, output[-4000:]
    return done.stdout


def old_java_command(version: str) -> list[str]:
    """Return the command line of `clients/java/old/OldRecords.java` on the Java client of `version`, 0.8.2.2 to 0.10.2.2.

    It is compiled against that client, which has what the newest has, and less; the JSON library is Kafka's of today.
    """
    jackson = ":".join(map(str, sorted(kafka_jars().glob("jackson-*.jar"))))
    javac = require_command("javac", "default-jdk-headless")
    maven = require_command("mvn", "maven")
    directory = CLIENTS_DIRECTORY / "java" / "old"
    pom, source = directory / "pom.xml", directory / "OldRecords.java"

    def build(output: Path) -> None:
        run_maven(
            [maven, "-q", "-B", "-f", str(pom), f"-Dkafka.version={version}", "dependency:copy-dependencies",
             f"-DoutputDirectory={output}"],
        )  # fmt: skip
        _run([javac, "-nowarn", "-cp", f"{output}/*:{jackson}", "-d", str(output), str(source)])

    product = make_product(f"old-java-{version}", [pom, source], build)
    return ["java", *JVM_OPTIONS, "-cp", f"{product}:{product}/*:{jackson}", "OldRecords"]


def versioned_java_command(program: str, version: str) -> list[str]:
    """Return the command line of the only class in `clients/java/PROGRAM` on the Java client of `version`, 0.11 or newer.

    It is compiled against that client; the JSON library is Kafka's of today.
    """
    jackson = ":".join(map(str, sorted(kafka_jars().glob("jackson-*.jar"))))
    javac = require_command("javac", "default-jdk-headless")
    maven = require_command("mvn", "maven")
    pom = CLIENTS_DIRECTORY / "java" / "old" / "pom.xml"
    (source,) = (CLIENTS_DIRECTORY / "java" / program).glob("*.java")

    def build(output: Path) -> None:
        run_maven(
            [maven, "-q", "-B", "-f", str(pom), f"-Dkafka.version={version}", "dependency:copy-dependencies",
             f"-DoutputDirectory={output}"],
        )  # fmt: skip
        _run([javac, "-nowarn", "-cp", f"{output}/*:{jackson}", "-d", str(output), str(source)])

    product = make_product(f"{program}-java-{version}", [pom, source], build)
    return ["java", *JVM_OPTIONS, "-cp", f"{product}:{product}/*:{jackson}", source.stem]


def streams_command(main_class: str, *arguments: str, version: str = KAFKA_VERSION) -> list[str]:
    """Return the command line of a class of Kafka Streams, of its own tests, or of `clients/java/streams` (100 MB)."""
    javac = require_command("javac", "default-jdk-headless")
    maven = require_command("mvn", "maven")
    directory = CLIENTS_DIRECTORY / "java" / "streams"
    pom, sources = directory / "pom.xml", sorted(directory.glob("*.java"))

    def build(output: Path) -> None:
        run_maven(
            [maven, "-q", "-B", "-f", str(pom), f"-Dkafka.version={version}", "dependency:copy-dependencies",
             f"-DoutputDirectory={output}"],
        )  # fmt: skip
        _run([javac, "-nowarn", "-cp", f"{output}/*", "-d", str(output), *map(str, sources)])

    product = make_product(f"streams-{version}", [pom, *sources], build)
    # a broker that is killed makes warnings of each client, many times
    logger = "-Dorg.slf4j.simpleLogger"
    levels = [f"{logger}.defaultLogLevel=warn", f"{logger}.log.org.apache.kafka.clients=error"]
    return ["java", *JVM_OPTIONS, *levels, "-cp", f"{product}:{product}/*", main_class, *arguments]


def zookeeper_clients_command() -> list[str]:
    """Return the command line of `clients/java/zookeeper/OldClients.java` on Kafka 0.8.2.2, whose clients use ZooKeeper."""
    jackson = ":".join(map(str, sorted(kafka_jars().glob("jackson-*.jar"))))
    javac = require_command("javac", "default-jdk-headless")
    maven = require_command("mvn", "maven")
    directory = CLIENTS_DIRECTORY / "java" / "zookeeper"
    pom, log4j, source = (directory / name for name in ("pom.xml", "log4j.properties", "OldClients.java"))

    def build(output: Path) -> None:
        run_maven(
            [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={output}"],
        )
        _run([javac, "-nowarn", "-cp", f"{output}/*:{jackson}", "-d", str(output), str(source)])

    product = make_product("zookeeper-clients", [pom, source], build)
    log = f"-Dlog4j.configuration=file:{log4j}"
    return ["java", *JVM_OPTIONS, log, "-cp", f"{product}:{product}/*:{jackson}", "OldClients"]


def old_kafka_python_command(api_version: str) -> list[str]:
    """Return the command line of kafka-python 1.4.7, which speaks message format v0, as to a broker of `api_version`."""

    # xxhash: by which it makes the wrong checksum of lz4 frames
    packages = ["kafka-python==1.4.7", "xxhash==3.5.0"]

    def install(output: Path) -> None:
        fetch([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(output), *packages])

    product = make_product("-".join(packages).replace("==", "-"), [], install)
    module = "tests.clients.programs.old_kafka_python_records"
    return ["env", f"PYTHONPATH={product}", sys.executable, "-W", "ignore", "-m", module, api_version]


def go_program() -> Path:
    """Return the executable built from `clients/go`."""
    go = require_command("go", "golang-go 1.21 or newer")
    directory = CLIENTS_DIRECTORY / "go"
    sources = [*sorted(directory.glob("*.go")), directory / "go.mod", directory / "go.sum"]

    def build(output: Path) -> None:
        fetch([go, "build", "-C", str(directory), "-o", str(output / "records"), "."])

    return make_product("go-records", sources, build) / "records"


def sarama_program() -> Path:
    """Return the executable built from `clients/go/sarama`."""
    go = require_command("go", "golang-go 1.21 or newer")
    directory = CLIENTS_DIRECTORY / "go" / "sarama"
    sources = [*sorted(directory.glob("*.go")), directory / "go.mod", directory / "go.sum"]

    def build(output: Path) -> None:
        fetch([go, "build", "-C", str(directory), "-o", str(output / "sarama"), "."])

    return make_product("go-sarama", sources, build) / "sarama"


def franz_go_tests() -> Path:
    """Return the executable of franz-go's own tests, of the version that `clients/go` uses."""
    go = require_command("go", "golang-go 1.21 or newer")
    directory = CLIENTS_DIRECTORY / "go"
    package = "github.com/twmb/franz-go/pkg/kgo"

    def build(output: Path) -> None:
        fetch([go, "test", "-C", str(directory), "-c", "-o", str(output / "kgo.test"), package])

    return make_product("franz-go-tests", [directory / "go.mod", directory / "go.sum"], build) / "kgo.test"


def librdkafka_tests() -> Path:
    """Return the directory of librdkafka's own tests, of those in `LIBRDKAFKA_TESTS`: `tests/test-runner` and `kafka`.

    The sources are in an npm package. `kafka` stands for an installation of Kafka, which the tests run a Java producer from.
    """
    npm = require_command("npm", "npm")
    make = require_command("make", "make")
    compiler = require_command("g++", "g++")
    javac = require_command("javac", "default-jdk-headless")
    for header, package in (("rapidjson/schema.h", "rapidjson-dev"), ("openssl/ssl.h", "libssl-dev")):
        command = [compiler, "-fsyntax-only", "-x", "c++", "-"]
        if subprocess.run(command, input=f"#include <{header}>\n", text=True, capture_output=True).returncode:
            unavailable(f"{header} is not installed (deploy/debian/install-test-packages installs {package})")
    jars = kafka_jars()
    sources = [CLIENTS_DIRECTORY / "librdkafka" / name for name in ("package.json", "package-lock.json")]

    def build(output: Path) -> None:
        for source in sources:
            shutil.copy(source, output)
        fetch([npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=output)
        library = output / "librdkafka"
        (output / "node_modules/@confluentinc/kafka-javascript/deps/librdkafka").rename(library)
        shutil.rmtree(output / "node_modules")
        # none of these is needed: codecs are tested elsewhere
        without = ("gssapi", "curl", "zlib", "zstd", "lz4-ext", "optimization")
        _run(["./configure", *(f"--disable-{feature}" for feature in without)], cwd=library)
        _run([make, "-j2", "-C", "src", "librdkafka.a"], cwd=library)
        _run([make, "-j2", "-C", "src-cpp", "librdkafka++.a"], cwd=library)
        tests = library / "tests"
        names = re.findall(r"^_TEST_DECL\((\w+)\);", (tests / "test.c").read_text(), re.MULTILINE)
        absent = "".join(f"__attribute__((weak)) int main_{name}(int c, char **v) {{ abort(); }}\n" for name in names)
        (tests / "0-absent.c").write_text(f"#include <stdlib.h>\n/* the tests that are not compiled */\n{absent}")
        in_c = ["0-absent.c", *(name for name in LIBRDKAFKA_TESTS if name.endswith(".c"))]
        in_cxx = [name for name in LIBRDKAFKA_TESTS if name.endswith(".cpp")]
        chosen = (f"TESTSRCS_C={' '.join(in_c)}", f"TESTSRCS_CXX={' '.join(in_cxx)}")
        _run([make, "-j2", "-C", "tests", "test-runner", *chosen], cwd=library)
        _run([javac, "-nowarn", "-cp", f"{jars}/*", "TransactionProducerCli.java"], cwd=tests / "java")
        commands = library / "kafka" / "bin"
        commands.mkdir(parents=True)
        run_class = commands / "kafka-run-class.sh"
        run_class.write_text(f'#!/bin/sh\nexec java {" ".join(JVM_OPTIONS)} -cp "$CLASSPATH:$KAFKA_JARS/*" "$@"\n')
        acls = commands / "kafka-acls.sh"
        acls.write_text('#!/bin/sh\nexec "$(dirname "$0")/kafka-run-class.sh" org.apache.kafka.tools.AclCommand "$@"\n')
        for command in (run_class, acls):
            command.chmod(0o755)

    return make_product("librdkafka-tests", [*sources, Path(__file__)], build) / "librdkafka"


def node_program() -> Path:
    """Return the path of `records.js`, copied beside the npm packages that its lock file names."""
    require_command("node", "nodejs")
    npm = require_command("npm", "npm")
    directory = CLIENTS_DIRECTORY / "node"
    sources = [directory / "package.json", directory / "package-lock.json", *sorted(directory.glob("*.js"))]

    def install(output: Path) -> None:
        for source in sources:
            shutil.copy(source, output)
        fetch([npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=output)

    return make_product("node-records", sources, install) / "records.js"


def make_product(name: str, sources: Iterable[Path], build: Callable[[Path], None], texts: Iterable[str] = ()) -> Path:
    """Return `.build/NAME-DIGEST`, made by `build(directory)` if missing.

    The digest is of the contents of the files `sources` and of `texts`: whatever the product depends on.
    """
    digest = hashlib.sha256()
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    for text in texts:
        digest.update(text.encode() + b"\0")
    finished = BUILD_DIRECTORY / f"{name}-{digest.hexdigest()[:12]}"
    if finished.is_dir():
        return finished
    BUILD_DIRECTORY.mkdir(exist_ok=True)
    with _locked(BUILD_DIRECTORY / f"{name}.lock"):
        if not finished.is_dir():
            unfinished = BUILD_DIRECTORY / f"{finished.name}.unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            build(unfinished)
            unfinished.rename(finished)
    return finished


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def run_maven(command: list[str], cwd: Path | None = None) -> None:
    """Run Maven, alone, and again if it fails. Raises RuntimeError with what it said."""
    BUILD_DIRECTORY.mkdir(exist_ok=True)
    with _locked(BUILD_DIRECTORY / "maven.lock"):
        fetch(command, cwd, again=["-U"])  # else it remembers what it did not find


def fetch(
    command: list[str], cwd: Path | None = None, again: Iterable[str] = (), timeout_s: float = _BUILD_TIMEOUT_S
) -> None:
    """Run what takes something from the network, and with the arguments `again` if it fails. Raises RuntimeError."""
    for _ in range(_FETCHES - 1):
        try:
            return _run(command, cwd, timeout_s)
        except RuntimeError:
            time.sleep(_BETWEEN_FETCHES_S)
            command = [*command, *again]
    return _run(command, cwd, timeout_s)


def _run(command: list[str], cwd: Path | None = None, timeout_s: float = _BUILD_TIMEOUT_S) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=timeout_s)
    if done.returncode != 0:
        output = (done.stdout + done.stderr).strip()[-4000:]
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{output}")
