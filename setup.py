"""The list of native modules, how they are compiled, and one switch.

``ODRADEK_DEBUG=1`` builds with bounds checks and with the fault points at which the crash tests end the process.
Everything else about the project stands in ``pyproject.toml``.
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

DEBUG = os.environ.get("ODRADEK_DEBUG") == "1"

MODULES = sorted(path.stem for path in Path("broker/_ext").glob("*.pyx"))

extensions = [
    Extension(
        f"broker._ext.{name}",
        [f"broker/_ext/{name}.pyx"],
        include_dirs=["broker/_ext"],
        define_macros=[("ODRADEK_DEBUG", "1")] if DEBUG else [],
        extra_compile_args=["-O1", "-g", "-UNDEBUG"] if DEBUG else ["-O3"],
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
