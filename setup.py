"""The native modules and how they are compiled. Everything else about the project is in ``pyproject.toml``.

Environment variables:

``ODRADEK_DEBUG=1``     bounds checks, and the fault points at which the crash tests end the process
``ODRADEK_SANITIZE=address,undefined``  these sanitizers of the compiler; start Python with their libraries preloaded.
                        Objects are freed at once instead of kept for the next use, so that AddressSanitizer sees who uses
                        them afterwards
``ODRADEK_QUICK=1``     no optimization: half the time, for checks of the packages
``ODRADEK_JOBS=N``      how many modules to compile at once; default: as many as this process may use CPUs

Every build keeps what it makes in two directories: ``build/c-HASH`` has the C sources, ``build/native-HASH`` the compiled
modules. Each hash stands for all that determines the content: versions, directives, options, variables such as CFLAGS. So a
module is compiled once for all commands (``make build``, ``pip install``, ``make wheel``), and a wheel never holds a module
that was compiled with other options.
"""

import filecmp
import hashlib
import itertools
import os
import shutil
import sys
import sysconfig
from pathlib import Path

import Cython
from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.modified import newer_group

PACKAGES = Path("broker")  # where Python finds the import package `odradek`
DIRECTORY = PACKAGES / "odradek/_ext"
DEBUG = os.environ.get("ODRADEK_DEBUG") == "1"
FOR_TESTS = "odradek._ext.testing."
"""Native code that only tests call. It is compiled in the source tree only; a wheel contains none of it."""
SANITIZE = os.environ.get("ODRADEK_SANITIZE", "")
QUICK = os.environ.get("ODRADEK_QUICK") == "1"
SANITIZERS = [f"-fsanitize={SANITIZE}"] if SANITIZE else []
if SANITIZE:
    OPTIONS = [
        "-O1" if "undefined" in SANITIZE else "-O0",
        "-g1",
        "-fno-omit-frame-pointer",
        "-DCYTHON_USE_FREELISTS=0",
    ]
elif DEBUG:
    OPTIONS = ["-O1", "-g", "-UNDEBUG"]
else:  # no debug information, which is four fifths of a module; the names of functions remain for perf and gdb
    OPTIONS = ["-O0" if QUICK else "-O2", "-g0"]
OPTIONS += ["-Werror=incompatible-pointer-types"]  # no plain pointer to a shared word (_ext/shm/atomics.h)


DIRECTIVES = {
    "language_level": 3,
    "boundscheck": DEBUG,
    "wraparound": False,
    "initializedcheck": DEBUG,
    "cdivision": True,
    "embedsignature": True,
    # Annotations are only for the stubs (tools/native_stubs.py): Cython does not check them, and without `binding` does not
    # store them. Functions without `binding` are also smaller, and a call of one does not take longer.
    "annotation_typing": False,
    "binding": False,
    "freethreading_compatible": False,
}
COUNTED = 20
"""How many modules are compiled between two lines about the progress."""
COMPILER_VARIABLES = ("CC", "CFLAGS", "CPPFLAGS", "LDFLAGS", "LDSHARED")
"""The environment variables by which setuptools changes how C is compiled and linked."""


def named_by_content(name: str, *determined_by: object) -> Path:
    """The directory ``build/NAME-HASH`` for what is determined by these values."""
    return Path("build") / f"{name}-{hashlib.sha256(repr(determined_by).encode()).hexdigest()[:12]}"


C_SOURCES = named_by_content("c", Cython.__version__, DIRECTIVES)
COMPILED = named_by_content(
    "native",
    C_SOURCES,
    OPTIONS,
    SANITIZERS,
    DEBUG,
    sys.version,
    sysconfig.get_config_var("EXT_SUFFIX"),
    [os.environ.get(variable) for variable in COMPILER_VARIABLES],
)


def native_modules() -> list[Extension]:
    """One extension per ``.pyx`` file. Ends the build if there is none: a broker without native modules cannot start."""
    sources = sorted(DIRECTORY.glob("*/*.pyx"))
    if not sources:
        sys.exit(f"setup.py: no native source ({DIRECTORY}/*/*.pyx) below {Path.cwd()}: this source tree is incomplete")
    return [
        Extension(
            ".".join(path.relative_to(PACKAGES).with_suffix("").parts),
            [str(path)],
            include_dirs=[str(DIRECTORY)],
            define_macros=[("ODRADEK_DEBUG", "1")] if DEBUG else [],
            extra_compile_args=OPTIONS + SANITIZERS,
            extra_link_args=SANITIZERS,
            libraries=["pthread"],
        )
        for path in sources
    ]


class BuildNativeModules(build_ext):
    """Runs Cython and the C compiler on several modules at once, and only when modules are built, not for an sdist."""

    def finalize_options(self) -> None:
        super().finalize_options()
        if not self.inplace:
            self.extensions = [module for module in self.extensions if not module.name.startswith(FOR_TESTS)]
        if self.parallel is None:
            self.parallel = int(os.environ.get("ODRADEK_JOBS") or len(os.sched_getaffinity(0)))

    def get_source_files(self) -> list[str]:
        """What an sdist holds. MANIFEST.in cannot name it: setuptools finds files through one of two paths to a directory."""
        return sorted(str(path) for pattern in ("*.pyx", "*.pxd", "*.pyi", "*.h") for path in DIRECTORY.rglob(pattern))

    def run(self) -> None:
        """Compile what changed into `COMPILED`, and copy the modules from there to where the command wants them."""
        destination, self.build_lib = self.build_lib, str(COMPILED / "modules")
        self.build_temp = str(COMPILED / "objects")
        try:
            super().run()  # with --inplace this calls copy_extensions_to_source
        finally:
            self.build_lib = destination
        if not self.inplace:
            self.copy_modules(Path(destination))

    def build_extensions(self) -> None:
        generated = cythonize(
            self.extensions,
            nthreads=self.parallel,
            include_path=[str(PACKAGES)],
            build_dir=str(C_SOURCES),
            compiler_directives=DIRECTIVES,
        )
        for extension, with_c_source in zip(self.extensions, generated, strict=True):
            extension.sources = with_c_source.sources
            extension.depends = with_c_source.depends
        self.outdated = {
            extension.name
            for extension in self.extensions
            if newer_group([*extension.sources, *extension.depends], self.get_ext_fullpath(extension.name), "newer")
        }
        self.compiled = itertools.count(1)
        super().build_extensions()

    def build_extension(self, ext: Extension) -> None:
        """Called by several threads. A line for each `COUNTED` modules shows the progress, also in a file."""
        super().build_extension(ext)
        if ext.name in self.outdated and (number := next(self.compiled)) % COUNTED == 0:
            print(f"compiled {number} of {len(self.outdated)} native modules", flush=True)

    def copy_extensions_to_source(self) -> None:
        """Copy the modules into the source tree, which setuptools does only for those that are newer than the present ones."""
        self.copy_modules(PACKAGES)

    def copy_modules(self, directory: Path) -> None:
        """Copy the compiled modules that differ to below `directory`.

        Each replaces its predecessor as a new file: a process that has loaded the old module keeps it unchanged.
        """
        for extension in self.extensions:
            module = self.get_ext_filename(extension.name)
            source, target = COMPILED / "modules" / module, directory / module
            if target.is_file() and filecmp.cmp(source, target):
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            new = target.with_name(f"{target.name}.new")
            shutil.copy2(source, new)
            new.replace(target)


if __name__ == "__main__":  # Cython's processes may import this file again
    setup(ext_modules=native_modules(), cmdclass={"build_ext": BuildNativeModules})
