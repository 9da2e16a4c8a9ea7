"""The native modules and how they are compiled. Everything else about the project is in ``pyproject.toml``.

Environment variables:

``ODRADEK_DEBUG=1``     bounds checks, and the fault points at which the crash tests end the process
``ODRADEK_SANITIZE=address,undefined``  these sanitizers of the compiler; start Python with their libraries preloaded.
                        Objects are freed at once instead of kept for the next use, so that AddressSanitizer sees who uses
                        them afterwards
``ODRADEK_QUICK=1``     no optimization: half the time, for checks of the packages
``ODRADEK_JOBS=N``      how many modules to compile at once; default: as many as this process may use CPUs
"""

import os
import shutil
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.modified import newer_group

PACKAGES = Path("broker")  # where Python finds the import package `odradek`
DIRECTORY = PACKAGES / "odradek/_ext"
DEBUG = os.environ.get("ODRADEK_DEBUG") == "1"
SANITIZE = os.environ.get("ODRADEK_SANITIZE", "")
FOR_TESTS = DEBUG or "--inplace" in sys.argv  # a wheel contains no native code that only tests call
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


def native_modules() -> list[Extension]:
    """One extension per ``.pyx`` file. Ends the build if there is none: a broker without native modules cannot start."""
    sources = sorted(DIRECTORY.glob("*/*.pyx"))
    if not FOR_TESTS:
        sources = [path for path in sources if path.parent.name != "testing"]
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
        if self.parallel is None:
            self.parallel = int(os.environ.get("ODRADEK_JOBS") or len(os.sched_getaffinity(0)))

    def get_source_files(self) -> list[str]:
        """What an sdist holds. MANIFEST.in cannot name it: setuptools finds files through one of two paths to a directory."""
        return sorted(str(path) for pattern in ("*.pyx", "*.pxd", "*.pyi", "*.h") for path in DIRECTORY.rglob(pattern))

    def build_extensions(self) -> None:
        generated = cythonize(
            self.extensions,
            nthreads=self.parallel,
            include_path=[str(PACKAGES)],
            compiler_directives={
                "language_level": 3,
                "boundscheck": DEBUG,
                "wraparound": False,
                "initializedcheck": DEBUG,
                "cdivision": True,
                "embedsignature": True,
                "freethreading_compatible": False,
            },
        )
        for extension, with_c_source in zip(self.extensions, generated, strict=True):
            extension.sources = with_c_source.sources
            extension.depends = with_c_source.depends
        options = Path(f"build/{self.plat_name}-options")
        described = " ".join([*OPTIONS, *SANITIZERS, str(DEBUG)])
        if not FOR_TESTS:  # setuptools puts everything that an earlier build left in this directory into the wheel
            shutil.rmtree(Path(self.build_lib, "odradek/_ext/testing"), ignore_errors=True)
        self.reusable = options.is_file() and options.read_text() == described
        super().build_extensions()
        options.parent.mkdir(exist_ok=True)
        options.write_text(described)

    def build_extension(self, extension: Extension) -> None:
        """Compile a module, unless ``build_ext --inplace`` did it before: pip builds in directories that are new each time."""
        built = Path(self.get_ext_fullpath(extension.name))
        compiled = DIRECTORY.joinpath(*extension.name.split(".")[2:]).with_name(built.name)
        needs = [*extension.sources, *extension.depends]
        if self.reusable and not built.exists() and compiled.is_file() and not newer_group(needs, str(compiled)):
            built.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(compiled, built)
        else:
            super().build_extension(extension)


if __name__ == "__main__":  # Cython's processes may import this file again
    setup(ext_modules=native_modules(), cmdclass={"build_ext": BuildNativeModules})
