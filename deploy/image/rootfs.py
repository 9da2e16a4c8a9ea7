"""Executes a Containerfile: a root directory for each stage, and the settings of the last one as JSON (decision 38).

Uses the standard library, debootstrap for the base image, and systemd-nspawn for RUN, with the network of this machine. Runs as
root. It proves the steps of the Containerfile where no container runtime exists; published images are built by one.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from deploy.image.containerfile import Containerfile, ContainerfileError, Step, expand, parse

PROJECT = Path(__file__).resolve().parents[2]
BASES = PROJECT / ".build/image"
DEBIAN = re.compile(r"docker\.io/library/debian:([a-z]+)(?:-\d{8})?-slim@sha256:[0-9a-f]{64}")
"""A base image by its digest. debootstrap makes another of the same release, of packages that Debian has signed."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CERTIFICATES = "/run/certificates-of-host.crt"


class BuildFailed(Exception):
    """A step fails; the text has the path of the Containerfile and the line."""


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="deploy/image/build-rootfs", description="Build the root file system of an image."
    )
    parser.add_argument(
        "--file", type=Path, default=PROJECT / "deploy/image/Containerfile", help="default: that of the broker"
    )
    parser.add_argument(
        "--wheel", type=Path, required=True, help="the wheel that stands for dist/odradek-*-cp311-*.whl"
    )
    parser.add_argument(
        "--build-arg", action="append", default=[], metavar="NAME=VALUE", help="a value of an ARG; repeatable"
    )
    parser.add_argument("--into", type=Path, help="directory for rootfs/ and config.json; it must not exist")
    parser.add_argument(
        "--tar", type=Path, help="write the root file system as a tar.gz archive, and FILE.json beside it"
    )
    options = parser.parse_args()
    if not (options.into or options.tar):
        parser.error("--into DIRECTORY or --tar FILE says where the result belongs")
    if os.geteuid() != 0:
        sys.exit("build-rootfs: not running as root: debootstrap and systemd-nspawn need it")
    for command in ("debootstrap", "systemd-nspawn"):
        if shutil.which(command) is None:
            sys.exit(f"build-rootfs: the command {command} is missing: install debootstrap and systemd-container")
    if options.into and options.into.exists():
        sys.exit(f"build-rootfs: {options.into} exists: remove it, or choose another directory")
    values = {"SOURCE_DATE_EPOCH": os.environ["SOURCE_DATE_EPOCH"], "VERSION": options.wheel.name.split("-")[1]}
    for given in options.build_arg:
        name, equals, value = given.partition("=")
        if not equals:
            parser.error(f"--build-arg {given}: must be NAME=VALUE")
        values[name] = value
    os.umask(0o022)
    BASES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BASES, prefix="run-") as directory:
        try:
            root, config = execute(parse(options.file), options.wheel, values, Path(directory))
        except (ContainerfileError, BuildFailed) as error:
            sys.exit(f"build-rootfs: {error}")
        if options.tar:
            write_tar(root, options.tar)
            options.tar.with_name(f"{options.tar.name}.json").write_text(json.dumps(config, indent=2) + "\n")
        if options.into:
            options.into.mkdir(parents=True)
            shutil.move(root, options.into / "rootfs")
            (options.into / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def execute(file: Containerfile, wheel: Path, given: dict[str, str], directory: Path) -> tuple[Path, dict[str, object]]:
    """Execute all stages below `directory`; returns the root directory of the last one and its settings.

    :param given: values of ARG lines. :raises BuildFailed: a step fails.
    """
    first = {name: value for name, value in file.arguments.items() if value is not None} | {
        name: value for name, value in given.items() if name in file.arguments
    }
    roots: dict[str, Path] = {}
    for number, stage in enumerate(file.stages):
        where = f"{file.path}:{stage.line}"
        try:
            base = expand(stage.base, first)
        except ValueError as error:
            raise BuildFailed(f"{where}: {error}") from None
        root = directory / f"stage-{number}"
        start_from(base, root, roots, where)
        execution = Execution(root, wheel, given, roots)
        for step in stage.steps:
            try:
                execution.do(step)
            except (ValueError, BuildFailed) as error:
                raise BuildFailed(f"{file.path}:{step.line}: {step.instruction}: {error}") from None
        roots[str(number)] = roots[stage.name or str(number)] = root
    return root, execution.config


def start_from(base: str, root: Path, stages: dict[str, Path], where: str) -> None:
    debian = DEBIAN.fullmatch(base)
    if base == "scratch":
        root.mkdir()
    elif base in stages:
        copy_all(stages[base], root)
    elif debian:
        copy_all(debian_base(debian[1]), root)
    else:
        raise BuildFailed(
            f"{where}: FROM {base}: must be scratch, a stage, or docker.io/library/debian:RELEASE-slim@sha256:DIGEST"
        )


def copy_all(source: Path, target: Path) -> None:
    subprocess.run(["cp", "--archive", "--reflink=auto", source, target], check=True)


def debian_base(release: str) -> Path:
    """A minimal Debian, which is made once and kept in .build/image."""
    kept = BASES / f"debian-{release}"
    if not kept.exists():
        unfinished = Path(tempfile.mkdtemp(dir=BASES, prefix=f"debian-{release}-unfinished-"))
        # In a mount namespace: one that fails may leave /proc mounted in the directory, which is then removed.
        command = ["unshare", "--mount", "debootstrap", "--variant=minbase", release, str(unfinished)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode:
            shutil.rmtree(unfinished)
            raise BuildFailed(f"debootstrap ended with {done.returncode}:\n{done.stdout[-2000:]}")
        unfinished.chmod(0o755)
        unfinished.rename(kept)
    return kept


class Execution:
    """The steps of one stage: `root` is its file system, `config` what its settings have become (as in an OCI image)."""

    def __init__(self, root: Path, wheel: Path, given: dict[str, str], stages: dict[str, Path]) -> None:
        self._root = root
        self._wheel = wheel
        self._given = given
        self._stages = stages
        self._arguments: dict[str, str] = {}
        self._environment: dict[str, str] = {}
        self._directory = "/"
        self.config: dict[str, object] = {"Env": [], "Labels": {}, "ExposedPorts": [], "Volumes": []}

    def do(self, step: Step) -> None:
        """Execute one step. Raises BuildFailed, and ValueError for a name without a value."""
        known = self._arguments | self._environment
        words = [word if word is None or step.instruction == "RUN" else expand(word, known) for word in step.words]
        getattr(self, f"_{step.instruction.lower()}")(step, words)

    def _arg(self, step: Step, words: list[str]) -> None:
        name, default = words
        value = self._given.get(name, default)
        if value is not None:
            self._arguments[name] = value

    def _env(self, step: Step, words: list[str]) -> None:
        self._environment[words[0]] = words[1]
        self.config["Env"] = [f"{name}={value}" for name, value in self._environment.items()]

    def _label(self, step: Step, words: list[str]) -> None:
        labels = self.config["Labels"]
        assert isinstance(labels, dict)
        labels[words[0]] = words[1]

    def _user(self, step: Step, words: list[str]) -> None:
        self.config["User"] = words[0]

    def _workdir(self, step: Step, words: list[str]) -> None:
        self._directory = words[0]
        self.config["WorkingDir"] = words[0]
        self._below(words[0]).mkdir(parents=True, exist_ok=True)

    def _volume(self, step: Step, words: list[str]) -> None:
        self.config["Volumes"] = words

    def _expose(self, step: Step, words: list[str]) -> None:
        self.config["ExposedPorts"] = [int(word) for word in words]

    def _stopsignal(self, step: Step, words: list[str]) -> None:
        self.config["StopSignal"] = words[0]

    def _healthcheck(self, step: Step, words: list[str]) -> None:
        *options, _ = words[: words.index("CMD") + 1]
        names = {"interval": "Interval", "timeout": "Timeout", "start-period": "StartPeriod"}
        check: dict[str, object] = {"Test": words[words.index("CMD") :]}
        for option in options:
            name, _, value = option.removeprefix("--").partition("=")
            if name == "retries":
                check["Retries"] = int(value)
            else:
                check[names[name]] = int(value.removesuffix("s")) * 10**9  # nanoseconds, as in Docker's images
        self.config["Healthcheck"] = check

    def _entrypoint(self, step: Step, words: list[str]) -> None:
        self.config["Entrypoint"] = words

    def _cmd(self, step: Step, words: list[str]) -> None:
        self.config["Cmd"] = words

    def _copy(self, step: Step, words: list[str]) -> None:
        *patterns, target = words
        for pattern in patterns:
            sources = self._sources(pattern, step.source_stage)
            if not sources:
                raise BuildFailed(f"{pattern} does not exist")
            if len(sources) > 1 and not target.endswith("/"):
                raise BuildFailed(f"{pattern} are {len(sources)} files, but the target {target} does not end with /")
            for source in sources:
                self._copy_one(source, target)

    def _sources(self, pattern: str, stage: str | None) -> list[Path]:
        if stage is not None:
            if stage not in self._stages:
                raise BuildFailed(f"--from={stage}: there is no such stage before this one")
            path = self._stages[stage] / pattern.strip("/")
            return [path] if path.exists() else []
        if pattern.startswith("dist/"):
            return [self._wheel] if fnmatch.fnmatch(self._wheel.name, pattern.removeprefix("dist/")) else []
        return sorted(PROJECT.glob(pattern))

    def _copy_one(self, source: Path, target: str) -> None:
        place = self._below(target)
        if source.is_dir():
            place.mkdir(parents=True, exist_ok=True)
            subprocess.run(["cp", "--archive", f"{source}/.", place], check=True)
            return
        place = place / source.name if target.endswith("/") else place
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, place)
        os.chown(place, 0, 0)

    def _run(self, step: Step, words: list[str]) -> None:
        if "User" in self.config:
            raise BuildFailed("RUN after USER is not supported")
        command = ["/bin/sh", "-c", words[0]] if len(step.words) == 1 and not words[0].startswith("[") else words
        variables = (
            {"PATH": PATH, "DEBIAN_FRONTEND": "noninteractive"} | pip_settings() | self._arguments | self._environment
        )
        certificates = os.environ.get("PIP_CERT") or os.environ.get("SSL_CERT_FILE")
        binds = [f"--bind-ro={certificates}:{CERTIFICATES}"] if certificates else []
        if certificates:
            variables["PIP_CERT"] = CERTIFICATES
        nspawn = ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--pipe", f"--directory={self._root}", *binds,
                  f"--machine=build{os.getpid()}", f"--chdir={self._directory}"]  # fmt: skip
        settings = [f"--setenv={name}={value}" for name, value in variables.items()]
        done = subprocess.run(
            [*nspawn, *settings, "--", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode:
            raise BuildFailed(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-4000:]}")

    def _below(self, path: str) -> Path:
        """A path of the stage as one of this machine. Symbolic links are resolved below the root of the stage."""
        place = Path(os.path.normpath(f"{self._directory}/{path}" if not path.startswith("/") else path))
        resolved = self._root
        for part in place.parts[1:]:
            resolved = resolved / part
            while resolved.is_symlink():
                link = str(resolved.readlink())
                resolved = self._root / link.lstrip("/") if link.startswith("/") else resolved.parent / link
        return resolved


def pip_settings() -> dict[str, str]:
    """The settings by which pip reaches an index here, which are no part of the Containerfile."""
    return {name: os.environ[name] for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL") if name in os.environ}


def write_tar(root: Path, archive: Path) -> None:
    """Pack a root file system: with numeric owners, in the order of names, with SOURCE_DATE_EPOCH as the latest time."""
    with archive.open("wb") as output:
        epoch = os.environ["SOURCE_DATE_EPOCH"]
        order = ["--sort=name", "--numeric-owner", f"--mtime=@{epoch}", "--clamp-mtime", "--format=posix"]
        exact = "--pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime"
        packed = subprocess.Popen(
            ["tar", "--create", f"--directory={root}", *order, exact, "."], stdout=subprocess.PIPE
        )
        zipped = subprocess.run(["gzip", "-9n"], stdin=packed.stdout, stdout=output, check=False)
        if packed.wait() or zipped.returncode:
            raise BuildFailed(f"cannot write {archive}")


if __name__ == "__main__":
    main()
