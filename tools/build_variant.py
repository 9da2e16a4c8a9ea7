"""Builds a copy of the package with other options of the compiler, and runs a command in it.

``python tools/build_variant.py NAME [COMMAND ...]``: `VARIANTS` has the names. The copy is ``.build/NAME``. Each call copies
the Python files; a native module is compiled again only if its source changed. The command runs in the copy, with the package
and the sanitizers' libraries of the copy. A first word ``python`` stands for the interpreter that runs this script. The exit
code is that of the command, or 1 if AddressSanitizer reported something, which is printed.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ALWAYS = ("broker", "tests", "setup.py", "pyproject.toml")
ADDRESS_OPTIONS = "detect_leaks=0:allocator_may_return_null=1:log_path={reports}/asan"


@dataclass(frozen=True)
class Variant:
    build: dict[str, str]
    """Variables for setup.py."""
    also_copied: tuple[str, ...] = ()
    """Paths or patterns below the checkout, beside `ALWAYS`."""
    libraries: tuple[str, ...] = ()
    """Libraries of the compiler that are loaded before all others."""
    environment: dict[str, str] = field(default_factory=dict)
    """Variables for the command; ``{reports}`` is the directory of the reports."""
    may_be_skipped: bool = False
    """Whether a machine without the libraries may leave it out; never where the variable CI is set."""


VARIANTS = {
    # bounds checks and fault points
    "debug": Variant({"ODRADEK_DEBUG": "1"}),
    # the C sources of the release, not optimized: compiled in a minute
    "address": Variant(
        {"ODRADEK_SANITIZE": "address"},
        also_copied=("build/c-*",),
        libraries=("libasan.so",),
        environment={"PYTHONMALLOC": "malloc", "ASAN_OPTIONS": ADDRESS_OPTIONS},
        may_be_skipped=True,
    ),
    # What AddressSanitizer finds is in the reports; what UBSan finds, in the log of the process that it ends.
    "sanitized": Variant(
        {"ODRADEK_SANITIZE": "address,undefined"},
        also_copied=("docs",),
        libraries=("libasan.so", "libubsan.so"),
        environment={
            "PYTHONMALLOC": "malloc",
            "ASAN_OPTIONS": ADDRESS_OPTIONS,
            "UBSAN_OPTIONS": "halt_on_error=1:abort_on_error=1:print_stacktrace=1",
        },
    ),
}


def copy(variant: Variant, directory: Path) -> None:
    """Replace the Python files of the copy, and update its other files with those of the checkout."""
    for old in directory.rglob("*.p*"):
        source = ROOT / old.relative_to(directory)
        if old.suffix == ".py" or (old.suffix in (".pyx", ".pxd", ".pyi") and not source.exists()):
            old.unlink()
    patterns = ["--exclude=*.so", "--exclude=__pycache__"]
    if "build/c-*" not in variant.also_copied:
        patterns.append("--exclude=*.c")
    also = [str(path.relative_to(ROOT)) for pattern in variant.also_copied for path in sorted(ROOT.glob(pattern))]
    pack = subprocess.Popen(["tar", *patterns, "-chf", "-", *ALWAYS, *also], cwd=ROOT, stdout=subprocess.PIPE)
    subprocess.run(["tar", "-xf", "-", "-C", directory], stdin=pack.stdout, check=True)
    if pack.wait():
        sys.exit("tar cannot copy the checkout")


def build(variant: Variant, directory: Path) -> None:
    """Compile the native modules of the copy; ends the program with the end of the log if that fails."""
    log = directory / "build.log"
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace", "-j", os.environ.get("JOBS", "2")]
    with log.open("w") as output:
        failed = subprocess.run(
            command, cwd=directory, env={**os.environ, **variant.build}, stdout=output, stderr=subprocess.STDOUT
        ).returncode
    if failed:
        sys.exit("\n".join(log.read_text().splitlines()[-40:]))


def run(variant: Variant, directory: Path, command: list[str]) -> int:
    """Run the command in the copy. Return its exit code, or 1 if there are reports, which are printed."""
    reports = directory / "reports"
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir()
    environment = {**os.environ, "PYTHONPATH": f"{directory}/broker"}
    environment |= {name: value.format(reports=reports) for name, value in variant.environment.items()}
    if variant.libraries:
        environment["LD_PRELOAD"] = " ".join(library(name) for name in variant.libraries)
    arguments = [sys.executable, *command[1:]] if command[0] == "python" else command
    code = subprocess.run(arguments, cwd=directory, env=environment).returncode
    found = [path.read_text(errors="replace") for path in sorted(reports.iterdir())]
    print(*found, sep="\n", end="", file=sys.stderr)
    return code or (1 if found else 0)


def library(name: str) -> str:
    """Return the path of a library of the compiler. It is the bare name if the compiler does not have it."""
    command = [*os.environ.get("CC", "cc").split(), f"-print-file-name={name}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] not in VARIANTS:
        print(f"usage: build_variant.py {{{','.join(VARIANTS)}}} [COMMAND ...]", file=sys.stderr)
        return 2
    name, *command = arguments
    variant, directory = VARIANTS[name], ROOT / ".build" / name
    missing = [needed for needed in variant.libraries if not Path(library(needed)).is_absolute()]
    if missing:
        print(f"the build {name} is skipped: the C compiler has no {', '.join(missing)}", file=sys.stderr)
        return 0 if variant.may_be_skipped and not os.environ.get("CI") else 1
    directory.mkdir(parents=True, exist_ok=True)
    copy(variant, directory)
    build(variant, directory)
    return run(variant, directory, command) if command else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
