"""Nothing that an installation or a package downloads lacks a version and a checksum: a search through all files of deploy/."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.image.containerfile import expand, parse
from tests.toolchains import REPOSITORY

ALLOWED = {
    "deploy/release/emulated": "tests a wheel, on the machine of a developer",
    "deploy/release/headers.py": "compares the SHA-256 of what it fetches with its table",
    "deploy/release/on_musl": "compares the SHA-256 of sources with its table; tests a wheel, on the machine of a developer",
    "deploy/release/pin": "writes the hashes, on the machine of a developer",
}
"""Files that download something without a checksum, and why."""
PIP = re.compile(r"pip[\w\"']*\)?\b[^$]*[\s'\"](install|wheel|download)\b")
PIP_VERBS = {"install", "wheel", "download"}
OTHERS = re.compile(
    r"\bget_url:|\b(curl|wget|mvn|npx|skopeo)\s|\bnpm (ci|install)\b|\bgo (get|install)\b|\bgit clone\b|\bcargo install\b"
    r"|\b(podman|docker) pull\b|\burlretrieve\b"
)
BY_DIGEST = re.compile(r"\S+@sha256:[0-9a-f]{64}")


def lacks_hashes(words: str) -> bool:
    """Whether a command of pip may download something of which no hash is known. pip compares hashes of what it installs, but
    not of what it gets to make a wheel of a source; so there must be wheels only, or no environment of pip's own."""
    if "--no-index" in words:
        return False
    made_here = "--no-build-isolation" in words or ("--only-binary=:all:" in words and "--no-binary" not in words)
    return "--require-hashes" not in words or not made_here


def in_python(text: str) -> Iterator[str]:
    """The lists and calls of a module that are commands of pip which may download, and names of functions that download."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute | ast.Name | ast.alias):
            name = getattr(node, "attr", None) or getattr(node, "id", None) or getattr(node, "name", "")
            if OTHERS.search(name):
                yield name
        if not isinstance(node, ast.List | ast.Call):
            continue
        parts = node.elts if isinstance(node, ast.List) else node.args
        words = [str(part.value) for part in parts if isinstance(part, ast.Constant)]
        words += [part.value.id for part in parts if isinstance(part, ast.Starred) and isinstance(part.value, ast.Name)]
        words += [ast.unparse(part) for part in parts if isinstance(part, ast.JoinedStr)]
        if "pip" in words and PIP_VERBS & set(words) and lacks_hashes(" ".join(words)):
            yield " ".join(words)
        if words and OTHERS.search(f"{words[0]} "):
            yield " ".join(words)


def in_text(text: str) -> Iterator[str]:
    """The statements of a shell script, a playbook or a page that are commands which may download."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if line.lstrip().startswith("#"):
            continue
        statement = line
        for following in lines[number + 1 :]:
            of_module = "get_url:" in line and indent(following) > indent(line)
            if not of_module and not statement.endswith(("\\", ",")):
                break
            statement = f"{statement.removesuffix(chr(92))} {following.strip()}"
        pip = PIP.search(statement)
        if (pip and lacks_hashes(statement)) or (OTHERS.search(statement) and "checksum:" not in statement):
            yield statement.strip()


def indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def in_containerfile(path: Path) -> Iterator[str]:
    """The base images of a Containerfile without a digest, and what its commands download."""
    file = parse(path)
    values = {name: value for name, value in file.arguments.items() if value is not None}
    names = {"scratch"}
    for stage in file.stages:
        base = expand(stage.base, values)
        if base not in names and not BY_DIGEST.fullmatch(base):
            yield f"FROM {base}"
        names.add(stage.name or "")
    yield from in_text(path.read_text())


def unchecked(path: Path) -> list[str]:
    if "Containerfile" in path.name:
        return list(in_containerfile(path))
    text = path.read_text()
    return list(in_python(text) if path.suffix == ".py" or text.startswith("#!/usr/bin/env python") else in_text(text))


def test_no_download_of_an_installation_lacks_a_checksum() -> None:
    found = {}
    for path in sorted((REPOSITORY / "deploy").rglob("*")):
        name = str(path.relative_to(REPOSITORY))
        if path.is_file() and not path.is_symlink() and path.suffix not in (".md", ".json", ".pyc"):
            statements = unchecked(path)
            if name in ALLOWED:
                assert statements, f"{name} needs no exception any more"
            elif statements:
                found[name] = statements
    assert found == {}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("install", "#!/bin/sh\npip install wheel\n"),
        ("install", "python3 -m pip install --require-hashes -r requirements.txt\n"),
        ("install", "build_pip wheel --require-hashes \\\n  -r requirements.txt\n"),
        ("install", "pip install --require-hashes --only-binary=:all: --no-binary=pyspark -r requirements.txt\n"),
        ("install", "pip install x\npip install --no-index y\n"),
        ("tasks.yml", "argv: \"{{ pip + ['install', 'x'] }}\"\n"),
        ("tasks.yml", "ansible.builtin.get_url:\n  url: https://example.org/x\nchecksum: sha256:0\n"),
        ("fetch.sh", "curl -LO https://example.org/x\n"),
        ("fetch.sh", "mvn dependency:get\n"),
        ("fetch.py", "run(*pip, 'install', '--require-hashes', '-r', requirements)"),
        ("fetch.py", "pip = [\n  python,\n  '-m',\n  'pip',\n  'wheel',\n  name,\n]"),
        ("fetch.py", "run(*pip, 'install', f'--no-binary={x}', '--only-binary=:all:', '--require-hashes', '-r', file)"),
        ("fetch.py", "from urllib.request import urlretrieve"),
        ("fetch.py", "subprocess.run(['curl', url])"),
        ("Containerfile", "FROM docker.io/library/debian:bookworm-slim\n"),
        ("Containerfile.other", "ARG BASE=debian:bookworm-slim\nFROM scratch AS a\nFROM ${BASE}\n"),
        ("Containerfile", "FROM scratch\nRUN pip install x\n"),
    ],
)
def test_a_download_without_a_checksum_is_found(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    assert len(unchecked(tmp_path / name)) == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("install", "# pip install x\npip install --no-index x\n"),
        ("install", "pip install --require-hashes --only-binary=:all: -r x\napt-get install --yes x\n"),
        ("tasks.yml", "  get_url:\n    url: https://example.org/x\n    checksum: sha256:0\n"),
        ("tasks.yml", "argv: >-\n  {{ pip + ['wheel', '--require-hashes',\n    '--no-build-isolation', '-r', x] }}\n"),
        ("fetch.py", "run(*pip, 'wheel', '--require-hashes', '--no-build-isolation', '-r', file)"),
        ("fetch.py", "parser.add_argument('wheel')"),
        ("Containerfile", f"FROM debian:bookworm-slim@sha256:{'0' * 64} AS a\nFROM a\nFROM scratch\n"),
    ],
)
def test_a_download_with_a_checksum_is_not_found(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    assert unchecked(tmp_path / name) == []
