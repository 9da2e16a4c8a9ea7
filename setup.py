"""The native modules and how they are compiled. Everything else about the project is in ``pyproject.toml``.

Environment variables:

``ODRADEK_DEBUG=1``     bounds checks, and the fault points at which the crash tests end the process
``ODRADEK_SANITIZE=address,undefined``  these sanitizers of the compiler; start Python with their libraries preloaded.
                        Objects are freed at once instead of kept for the next use, so that AddressSanitizer sees who uses
                        them afterwards
``ODRADEK_QUICK=1``     no optimization: half the time, for checks of the packages
``ODRADEK_JOBS=N``      how many modules to compile at once; default: as many as this process may use CPUs

Every module is compiled to an object file, and those of a package are linked into one shared object
(docs/decisions/0049-one-object-per-package.md).

Every build keeps what it makes in two directories: ``build/c-HASH`` has the C sources, ``build/native-HASH`` the object files
and packages. Each hash stands for all that determines the content: versions, directives, options, variables such as CFLAGS. So
a module is compiled once for all commands (``make build``, ``pip install``, ``make wheel``), and a wheel never holds a module
that was compiled with other options.
"""

import filecmp
import gc
import hashlib
import itertools
import multiprocessing
import os
import shutil
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import Cython
from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.modified import newer_group

PACKAGES = Path("broker")  # where Python finds the import package `odradek`
DIRECTORY = PACKAGES / "odradek/_ext"
DEBUG = os.environ.get("ODRADEK_DEBUG") == "1"
LINKED = "_native"
"""The name of a package's shared object, also in `_ext/__init__.py`."""
FOR_TESTS = f"odradek._ext.testing.{LINKED}"
"""Native code that only tests call. Compiled in the source tree only, without optimization; a wheel contains none of it."""
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
OPTIONS.append("-fvisibility=hidden")
OPTIONS.append("-Werror=incompatible-pointer-types")  # no plain pointer to a shared word (_ext/shm/atomics.h)
LINKING = ["-Wl,-Bsymbolic", *SANITIZERS]

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
    # Nothing pickles native objects. Cython would write two functions for each class, most of which only raise TypeError.
    "auto_pickle": False,
}
COUNTED = 20
"""How many modules are compiled between two lines about the progress."""
TRANSLATED = 10
"""How many modules each of Cython's processes translates to C before it ends, which frees its memory (0.3 GB)."""
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
    LINKING,
    DEBUG,
    sys.version,
    sysconfig.get_config_var("EXT_SUFFIX"),
    [os.environ.get(variable) for variable in COMPILER_VARIABLES],
)


def native_packages() -> list[Extension]:
    """One extension per package, whose sources are its modules. Ends the build if there is none: a broker without native code
    cannot start."""
    packages = sorted({path.parent for path in DIRECTORY.glob("*/*.pyx")})
    if not packages:
        sys.exit(f"setup.py: no native source ({DIRECTORY}/*/*.pyx) below {Path.cwd()}: this source tree is incomplete")
    return [
        Extension(
            ".".join((*package.relative_to(PACKAGES).parts, LINKED)),
            [str(path) for path in sorted(package.glob("*.pyx"))],
        )
        for package in packages
    ]


def modules_of(package: Extension) -> list[Extension]:
    """The modules of a package, as arguments of `cythonize`."""
    return [
        Extension(
            ".".join(Path(source).relative_to(PACKAGES).with_suffix("").parts),
            [source],
            include_dirs=[str(DIRECTORY)],
            define_macros=[("ODRADEK_DEBUG", "1")] if DEBUG else [],
        )
        for source in package.sources
    ]


class BuildNativeModules(build_ext):
    """Runs Cython and the C compiler on several modules at once, and only when packages are built, not for an sdist."""

    def finalize_options(self) -> None:
        super().finalize_options()
        if not self.inplace:
            self.extensions = [package for package in self.extensions if package.name != FOR_TESTS]
        if self.parallel is None:
            self.parallel = int(os.environ.get("ODRADEK_JOBS") or len(os.sched_getaffinity(0)))

    def get_source_files(self) -> list[str]:
        """What an sdist holds. MANIFEST.in cannot name it: setuptools finds files through one of two paths to a directory."""
        return sorted(str(path) for pattern in ("*.pyx", "*.pxd", "*.pyi", "*.h") for path in DIRECTORY.rglob(pattern))

    def run(self) -> None:
        """Compile what changed into `COMPILED`, and copy the packages from there to the destination of the command."""
        destination, self.build_lib = self.build_lib, str(COMPILED / "packages")
        self.build_temp = str(COMPILED / "objects")
        try:
            super().run()  # with --inplace this calls copy_extensions_to_source
        finally:
            self.build_lib = destination
        if not self.inplace:
            self.copy_packages(Path(destination))

    def build_extensions(self) -> None:
        modules = self.translate([module for package in self.extensions for module in modules_of(package)])
        outdated = [
            module
            for module in modules
            if newer_group([*module.sources, *module.depends], self.object_of(module), "newer")
        ]
        numbers = itertools.count(1)

        def compile_module(module: Extension) -> None:
            """Called by several threads. A line for each `COUNTED` modules shows the progress, also in a file."""
            for_tests = module.name.startswith(FOR_TESTS.removesuffix(LINKED)) and "-O2" in OPTIONS  # not a debug build
            self.compiler.compile(
                module.sources,
                output_dir=self.build_temp,
                macros=module.define_macros,
                include_dirs=module.include_dirs,
                extra_postargs=OPTIONS + SANITIZERS + (["-O0"] if for_tests else []),
            )
            if (number := next(numbers)) % COUNTED == 0:
                print(f"compiled {number} of {len(outdated)} native modules", flush=True)

        with ThreadPoolExecutor(self.parallel) as pool:
            list(pool.map(compile_module, outdated))
        self.objects: dict[str, list[str]] = {}
        for module in modules:
            self.objects.setdefault(f"{module.name.rpartition('.')[0]}.{LINKED}", []).append(self.object_of(module))
        super().build_extensions()

    def translate(self, modules: list[Extension]) -> list[Extension]:
        """The modules with the paths of their C sources, which Cython writes if they are not up to date.

        Cython's syntax trees are so large that garbage collection takes almost half of its time. So its processes, which
        inherit the state of this one, collect nothing, and new ones replace them before they need much memory.
        """
        multiprocessing.set_start_method("fork", force=True)
        gc.disable()
        number = TRANSLATED * self.parallel
        translated: list[Extension] = []
        for start in range(0, len(modules), number):
            translated += cythonize(
                modules[start : start + number],
                nthreads=self.parallel,
                include_path=[str(PACKAGES)],
                build_dir=str(C_SOURCES),
                compiler_directives=DIRECTIVES,
                quiet=True,
            )
            print(f"the C sources of {len(translated)} of {len(modules)} native modules are up to date", flush=True)
        gc.enable()
        return translated

    def object_of(self, module: Extension) -> str:
        """The object file of a module."""
        (path,) = self.compiler.object_filenames(module.sources, output_dir=self.build_temp)
        return str(path)

    def build_extension(self, ext: Extension) -> None:
        """Link a package, always: that takes some ten milliseconds, and a module may have been removed."""
        self.compiler.link_shared_object(
            self.objects[ext.name], self.get_ext_fullpath(ext.name), libraries=["pthread", "m"], extra_postargs=LINKING
        )

    def copy_extensions_to_source(self) -> None:
        """Copy the packages into the source tree, which setuptools does only for those that are newer than the present ones."""
        self.copy_packages(PACKAGES)

    def copy_packages(self, directory: Path) -> None:
        """Copy the packages that differ to below `directory`, and remove the modules that builds of older versions left there.

        Each replaces its predecessor as a new file: a process that has loaded the old one keeps it unchanged.
        """
        for extension in self.extensions:
            package = self.get_ext_filename(extension.name)
            source, target = COMPILED / "packages" / package, directory / package
            for old in target.parent.glob(f"*{target.name.removeprefix(LINKED)}"):
                if old != target:
                    old.unlink()
            if target.is_file() and filecmp.cmp(source, target):
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            new = target.with_name(f"{target.name}.new")
            shutil.copy2(source, new)
            new.replace(target)


if __name__ == "__main__":  # Cython's processes may import this file again
    setup(ext_modules=native_packages(), cmdclass={"build_ext": BuildNativeModules})
