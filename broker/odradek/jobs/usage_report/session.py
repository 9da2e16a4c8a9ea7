"""The Spark session of the job: one per process, with its messages in a file.

Under ``spark-submit`` the job uses the existing session. Otherwise it checks for Java first, so that a missing Java is
reported in one line and not with a stack trace of Py4J's gateway.
"""

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.jobs.usage_report.errors import INSTALL, ReportError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
_PROGRESS_S = 10.0
JAVA_AT_LEAST = 17
_HOW_JAVA = f"install one (Debian: apt-get install openjdk-{JAVA_AT_LEAST}-jre-headless) or set JAVA_HOME"


def check_java() -> None:
    """:raises ReportError: there is no Java that Spark 4 supports; the message says how to install it"""
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if command is None or not os.access(command, os.X_OK):
        where = f"JAVA_HOME is {home}, where bin/java is missing" if home else "there is no java on the PATH"
        raise ReportError(f"Spark needs Java {JAVA_AT_LEAST} or newer, but {where}: {_HOW_JAVA}")
    try:
        version = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ReportError(
            f"Spark needs Java {JAVA_AT_LEAST} or newer, but {command} fails ({error}): {_HOW_JAVA}"
        ) from None
    match = re.search(r'version "(?:1\.)?(\d+)', version.stderr + version.stdout)
    if version.returncode or match is None:
        raise ReportError(f"Spark needs Java {JAVA_AT_LEAST} or newer, but {command} -version fails: {_HOW_JAVA}")
    if int(match[1]) < JAVA_AT_LEAST:
        raise ReportError(f"Spark needs Java {JAVA_AT_LEAST} or newer, {command} is version {match[1]}: {_HOW_JAVA}")


@contextmanager
def stderr_in(path: Path) -> Iterator[None]:
    """Redirect file descriptor 2 to `path`; processes started meanwhile (the JVM, its workers) keep the redirection."""
    sys.stderr.flush()
    kept = os.dup(2)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        os.dup2(log, 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
        os.close(log)


@contextmanager
def started_in(directory: Path) -> Iterator[None]:
    """Start processes in `directory` (Spark creates `artifacts` in its working directory) and let them find this package."""
    before, path = Path.cwd(), os.environ.get("PYTHONPATH")
    package_root = str(Path(__file__).absolute().parents[3])
    os.environ["PYTHONPATH"] = package_root if not path else f"{path}{os.pathsep}{package_root}"
    os.chdir(directory)
    try:
        yield
    finally:
        os.chdir(before)
        if path is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = path


#: For little data, where compilation costs more than it saves: only Java's first compiler, and Spark's interpreter instead of
#: generated classes. Adaptive plans are off, because they start a job for each shuffle.
_LEAN_JAVA = "-XX:TieredStopAtLevel=1"
_LEAN_SQL = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


def tune(session: "SparkSession", lean: bool) -> None:
    """Set the options that can be set on a running session, which may belong to somebody else."""
    for key, value in {"spark.sql.adaptive.enabled": "false", **(_LEAN_SQL if lean else {})}.items():
        session.conf.set(key, value)


@contextmanager
def spark_session(
    master: str | None, log: Path, scratch: Path, memory: str, lean: bool, app: str = "odradek usage report",
    more: Mapping[str, str] | None = None,
) -> Iterator["SparkSession"]:  # fmt: skip
    """Yield a session for the job; it is stopped afterwards if it was started here.

    :param lean: there is little data: start faster, with less compilation
    :param master: a Spark master; None for `LOCAL`
    :param log: the file for Spark's messages
    :param scratch: a directory for shuffles and spills, removed by the caller
    :param memory: heap size of the driver, as Java writes it; with a local master all of Spark's heap
    :param app: the name of the application in Spark. :param more: further settings of a session that is started here
    :raises ReportError: PySpark or Java is missing, or Spark does not start
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ReportError(f"PySpark is missing ({error}): {INSTALL}") from None
    active = SparkSession.getActiveSession()
    if active is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        # the session belongs to somebody else: set only what can be set while it runs
        session = active or SparkSession.builder.getOrCreate()
        tune(session, lean)
        yield session
        return
    check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    chosen = master or LOCAL
    if chosen.startswith("local"):
        # Otherwise Spark looks up the name of the machine, and does not start if it has no address.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName(app).master(chosen)
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": memory,
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.shuffle.partitions": "32",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.extraJavaOptions": f"-XX:+UseSerialGC {_LEAN_JAVA if lean else ''} -Djava.io.tmpdir={scratch}",
        "spark.log.level": "WARN",
        # time for Python and Java to connect to each other; Spark's default of 15 s is too short on a loaded machine
        "spark.python.authenticate.socketTimeout": "300s",
        **({"spark.driver.host": "127.0.0.1"} if chosen.startswith("local") else {}),
        **(more or {}),
    }.items():
        builder = builder.config(key, value)
    with stderr_in(log), started_in(scratch):
        try:
            session = builder.getOrCreate()
        except Exception as error:  # Java, Py4J and a wrong master URL raise many types; the user gets this line
            raise ReportError(f"Spark does not start with --master {chosen}: {first_line(error)}; see {log}") from None
    tune(session, lean)
    try:
        yield session
    except BaseException:
        with stderr_in(log):
            _stop_after_a_failure(session)
        raise
    with stderr_in(log):
        session.stop()


@contextmanager
def task_progress(spark: "SparkSession", say: Callable[[str], None]) -> Iterator[None]:
    """Print how many tasks have ended every `_PROGRESS_S` seconds, in a separate thread."""
    ended = threading.Event()
    tracker = spark.sparkContext.statusTracker()

    def report() -> None:
        while not ended.wait(_PROGRESS_S):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            for stage in stages:
                if stage is not None:
                    say(
                        f"{stage.numCompletedTasks} of {stage.numTasks} tasks ended, {stage.numActiveTasks} are running"
                    )

    thread = threading.Thread(target=report, name="task-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _stop_after_a_failure(session: "SparkSession") -> None:
    """Stop a session whose Java may have ended, for example by systemd. The error that ended the job is the one to report."""
    try:
        session.stop()
    except Exception as error:  # Py4J's, and those of its sockets
        print(f"Spark could not be stopped: {error!r}", file=sys.stderr)


def first_line(error: BaseException) -> str:
    """Return the first line of a (Java) exception's text that contains the message."""
    for line in str(error).splitlines():
        text = line.strip()
        if text and not text.startswith(("An error occurred while calling", "at ", ":", "Traceback")):
            return text[:300]
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[-1].lstrip(": ")[:300]
