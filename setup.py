"""The list of native modules, how they are compiled, and two switches.

``ODRADEK_DEBUG=1`` builds with bounds checks and with the fault points at which the crash tests end the process.
``ODRADEK_SANITIZE=1`` builds for AddressSanitizer and UndefinedBehaviorSanitizer, with whose libraries Python is to be started.
Everything else about the project stands in ``pyproject.toml``.
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

DEBUG = os.environ.get("ODRADEK_DEBUG") == "1"
SANITIZE = os.environ.get("ODRADEK_SANITIZE") == "1"
SANITIZERS = ["-fsanitize=address,undefined"] if SANITIZE else []
if SANITIZE:
    OPTIONS = ["-O1", "-g1", "-fno-omit-frame-pointer"]
elif DEBUG:
    OPTIONS = ["-O1", "-g", "-UNDEBUG"]
else:
    OPTIONS = ["-O3"]

MODULES = sorted(path.stem for path in Path("broker/_ext").glob("*.pyx"))

extensions = [
    Extension(
        f"broker._ext.{name}",
        [f"broker/_ext/{name}.pyx"],
        include_dirs=["broker/_ext"],
        define_macros=[("ODRADEK_DEBUG", "1")] if DEBUG else [],
        extra_compile_args=OPTIONS + SANITIZERS,
        extra_link_args=SANITIZERS,
        libraries=["pthread"],
    )
    for name in MODULES
]

setup(
    ext_modules=cythonize(
        extensions,
        nthreads=os.cpu_count() or 1,
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
)
