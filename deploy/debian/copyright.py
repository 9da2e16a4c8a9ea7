"""The copyright file of the Debian package: the licence of Odradek and those of all dependencies in its environment."""

from __future__ import annotations

from email.message import Message
from importlib.metadata import Distribution, distributions
from pathlib import Path

from deploy.release.environment import PLACE

HEAD = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: Odradek
Comment: This package contains the Python packages that Odradek needs, as they are on PyPI, without debug information.
 Each has its licence texts in /opt/odradek/venv/lib/python3.*/site-packages/NAME-VERSION.dist-info/, and a paragraph here.

Files: *
Copyright: 2026 the developers of Odradek
License: Apache-2.0
"""
APACHE = """\
License: Apache-2.0
 On Debian systems, /usr/share/common-licenses/Apache-2.0 has the complete text of the Apache License, version 2.0.
"""


def copyright_text(packages: Path) -> str:
    """The file's text for the distributions that are installed in the directory `packages`, in the order of their names."""
    found = sorted(distributions(path=[str(packages)]), key=lambda distribution: distribution.name.lower())
    others = [paragraph(distribution, packages) for distribution in found if distribution.name != "odradek"]
    return "\n".join([HEAD, *others, APACHE])


def paragraph(distribution: Distribution, packages: Path) -> str:
    directories = sorted(
        {str(file).split("/")[0] for file in distribution.files or () if not str(file).startswith("..")}
    )
    place = f"{PLACE}/{packages.relative_to(packages.parents[2])}".lstrip("/")
    texts = [
        str(file)
        for file in distribution.files or ()
        if ".dist-info/" in str(file) and file.name.upper().startswith(("LICENSE", "LICENCE", "COPYING", "NOTICE"))
    ]
    metadata = distribution.metadata
    where = " ".join(f"/{place}/{text}" for text in sorted(texts))
    return (
        f"Files: {' '.join(f'{place}/{directory}' for directory in directories)}\n"
        f"Copyright: {copyright_holder(metadata)}\n"
        f"License: {distribution.name}-{distribution.version}\n"
        f" {license_name(metadata)}. Text: {where or 'named by the package only'}\n"
    )


def copyright_holder(metadata: Message) -> str:
    return (metadata["Author"] or metadata["Author-email"] or "its authors").replace("\n", " ")


def license_name(metadata: Message) -> str:
    """An SPDX expression if the package has one, otherwise its own words, otherwise its classifier."""
    expression = metadata["License-Expression"] or (metadata["License"] or "").strip().partition("\n")[0]
    classifiers = [
        value.rpartition(" :: ")[2] for value in metadata.get_all("Classifier") or () if value.startswith("License ::")
    ]
    return expression or " or ".join(classifiers) or "see its licence text"
