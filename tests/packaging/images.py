"""Builds images by the steps of their Containerfiles, and runs them as container runtimes do: read-only, as their user."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests import toolchains
from tests.deploy.machines import require_machines

BUILD_S = 2000
AS_USER = (
    "import os, sys; os.environ.pop('NOTIFY_SOCKET', None); user, group = map(int, sys.argv[1].split(':')); "
    "os.setgroups([]); os.setgid(group); os.setuid(user); os.execvp(sys.argv[2], sys.argv[2:])"
)
"""Becomes the user of the image, then the program: nspawn finds users by getent, which the image of the broker lacks."""


@contextmanager
def built(wheel: Path, directory: Path, *options: object) -> Iterator[Path]:
    """The directory of an image: ``rootfs`` and ``config.json``. It is removed at the end.

    :param directory: does not exist yet. :param options: of ``deploy/image/build-rootfs``.
    """
    require_machines()
    command = [toolchains.REPOSITORY / "deploy/image/build-rootfs", "--wheel", wheel, "--into", directory, *options]
    done = subprocess.run(map(str, command), capture_output=True, text=True, timeout=BUILD_S, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    yield directory
    subprocess.run(["rm", "-rf", "--one-file-system", directory], check=True)


def settings(image: Path) -> dict[str, Any]:
    """The configuration of an image, with the names of the OCI specification."""
    return json.loads((image / "config.json").read_text())  # type: ignore[no-any-return]


def command_of(image: Path, name: str, program: list[str], nspawn_options: list[str], *environment: str) -> list[str]:
    """The command that runs a program in an image.

    :param name: of the machine, which no other one has. :param environment: NAME=VALUE, besides that of the image.
    """
    config = settings(image)
    return ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--pipe", "--private-network", "--read-only",
            "--timezone=off", "--no-new-privileges=yes", f"--directory={image / 'rootfs'}", f"--machine={name}",
            *nspawn_options, f"--chdir={config['WorkingDir']}",
            *(f"--setenv={setting}" for setting in (*config["Env"], *environment)),
            "--", "/usr/bin/python3.11", "-ISc", AS_USER, config["User"], *program]  # fmt: skip


def size_of(image: Path) -> int:
    """The bytes of all files of an image."""
    paths = (image / "rootfs").rglob("*")
    return sum(path.stat().st_size for path in paths if path.is_file() and not path.is_symlink())


def packed_size_of(image: Path) -> int:
    """The bytes of the file system as registries store it: a tar archive, compressed by gzip."""
    with subprocess.Popen(
        ["tar", "--create", f"--directory={image / 'rootfs'}", "."], stdout=subprocess.PIPE
    ) as packing:
        packed = subprocess.run(["gzip"], stdin=packing.stdout, capture_output=True, check=True).stdout
    assert packing.returncode == 0
    return len(packed)


def containerfile_of(image: Path) -> str:
    """A Containerfile of the same root file system and settings as `image`, for a container runtime without a registry."""
    config = settings(image)
    check = config["Healthcheck"]
    options = (
        f"--interval={check['Interval'] // 10**9}s --timeout={check['Timeout'] // 10**9}s --retries={check['Retries']}"
    )
    lines = [
        "FROM scratch",
        "COPY rootfs/ /",
        *(f"ENV {variable}" for variable in config["Env"]),
        f"USER {config['User']}",
        f"WORKDIR {config['WorkingDir']}",
        *(f"VOLUME {volume}" for volume in config["Volumes"]),
        f"STOPSIGNAL {config['StopSignal']}",
        f"HEALTHCHECK {options} CMD {json.dumps(check['Test'][1:])}",
        f"ENTRYPOINT {json.dumps(config['Entrypoint'])}",
    ]
    return "\n".join(lines) + "\n"
