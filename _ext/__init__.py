"""Native modules (Cython), compiled as ``odradek._ext.*``; the ``.pxd`` files are the table of contents.

All modules of a package are in one shared object, ``PACKAGE/_native`` (docs/decisions/0049-one-object-per-package.md).
"""

import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from types import ModuleType


class _Finder:
    """Finds the modules of the native packages: returns the shared object of the package as the file of each module."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        if not name.startswith(_MODULES) or path is None or name.count(".") != _DOTS:
            return None
        file = f"{path[0]}/_native{EXTENSION_SUFFIXES[0]}"
        spec = ModuleSpec(name, ExtensionFileLoader(name, file), origin=file)
        spec.has_location = True
        return spec


_MODULES = f"{__name__}."
_DOTS = __name__.count(".") + 2  # of odradek._ext.PACKAGE.MODULE
sys.meta_path.insert(0, _Finder)
