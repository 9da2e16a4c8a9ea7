"""The parser of Containerfiles, and what the Containerfiles of the project say."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.image.containerfile import ContainerfileError, Stage, expand, parse
from deploy.image.rootfs import DEBIAN, BuildFailed, start_from
from odradek.cli.container.__main__ import CONFIG_FILE
from odradek.config.broker_config import load
from tests.toolchains import REPOSITORY

IMAGE = REPOSITORY / "deploy/image"
FILES = ("Containerfile", "Containerfile.report")


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "Containerfile"
    path.write_text(text)
    return path


def last_words(stage: Stage, instruction: str) -> tuple[str | None, ...]:
    return [step.words for step in stage.steps if step.instruction == instruction][-1]


def test_stages_and_steps_are_parsed_with_their_lines(tmp_path: Path) -> None:
    text = (
        '# comment\nARG BASE=debian\n\nFROM ${BASE} AS build\nRUN one && \\\n  # in between\n  two\nENV A="b c"\n'
        'FROM scratch\nCOPY --from=build /a /b /c/\nUSER 7:8\nENTRYPOINT ["/x", "y"]\n'
    )
    found = parse(written(tmp_path, text))
    assert found.arguments == {"BASE": "debian"}
    build, last = found.stages
    assert (build.base, build.name, build.line, last.base, last.name) == ("${BASE}", "build", 4, "scratch", None)
    assert [(step.line, step.instruction, step.words) for step in build.steps] == [
        (5, "RUN", ("one && two",)),
        (8, "ENV", ("A", "b c")),
    ]
    assert [(step.instruction, step.words, step.source_stage) for step in last.steps] == [
        ("COPY", ("/a", "/b", "/c/"), "build"),
        ("USER", ("7:8",), None),
        ("ENTRYPOINT", ("/x", "y"), None),
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ADD a b", "ADD is not supported"),
        ("HEALTHCHECK NONE", "must be options"),
        ("HEALTHCHECK --interval=1m CMD true", "must be options"),
        ("HEALTHCHECK --interval=1s CMD true", "must be a list"),
        ("run true", "run is not supported"),
        ("COPY --chown=1 a b", "COPY --chown is not supported; the only option is --from=STAGE"),
        ("COPY a", "must name sources and a target"),
        ("COPY a b c", "the target of several sources must end with /"),
        ("COPY ../secret /", "sources are relative to the project"),
        ("COPY /etc/shadow /", "sources are relative to the project"),
        ("RUN --mount=type=cache true", "RUN --mount=type=cache is not supported"),
        ("USER root", "USER root: must be UID:GID in numbers"),
        ("USER 0:0", "and not root's"),
        ("ENTRYPOINT odradek start", 'ENTRYPOINT odradek start: must be a list, as ["command", "argument"]'),
        ("CMD []", "must be a list"),
        ("ENV A=1 B=2", "must be one NAME=VALUE"),
        ("ARG lower=1", "must be ARG NAME or ARG NAME=VALUE"),
        ("FROM --platform=x y", "without options"),
        ("WORKDIR here", "must be an absolute path"),
        ("EXPOSE http", "must be port numbers"),
        ("RUN true \\", "ends with a backslash"),
    ],
)
def test_what_the_parser_does_not_know_is_an_error_with_its_line(line: str, expected: str, tmp_path: Path) -> None:
    with pytest.raises(ContainerfileError) as failed:
        parse(written(tmp_path, f"FROM scratch\n{line}\n"))
    assert expected in str(failed.value)
    assert f"{tmp_path}/Containerfile:2: " in str(failed.value)


@pytest.mark.parametrize("text", ["", "RUN true\n"])
def test_a_file_without_from_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(ContainerfileError, match="FROM"):
        parse(written(tmp_path, text))


def test_only_known_names_are_expanded() -> None:
    assert expand("${A}/$B", {"A": "x"}) == "x/$B"
    with pytest.raises(ValueError, match=r"\$\{C\} has no value"):
        expand("${C}", {})


@pytest.mark.parametrize("name", FILES)
def test_the_last_stage_is_not_root_and_stops_in_order(name: str) -> None:
    last = parse(IMAGE / name).stages[-1]
    assert last_words(last, "USER") == ("10001:10001",)
    assert last_words(last, "STOPSIGNAL") == ("SIGTERM",)
    programs = {
        "Containerfile": "/opt/odradek/venv/bin/python",
        "Containerfile.report": "/opt/odradek/venv/bin/odradek",
    }
    assert last_words(last, "ENTRYPOINT")[0] == programs[name]
    instructions = [step.instruction for step in last.steps]
    assert "RUN" not in instructions[instructions.index("USER") :]
    labels = {step.words[0] for step in last.steps if step.instruction == "LABEL"}
    assert {f"org.opencontainers.image.{label}" for label in ("title", "licenses", "version")} <= labels


@pytest.mark.parametrize("name", FILES)
def test_copied_files_exist_and_are_not_ignored(name: str) -> None:
    kept = {line[1:] for line in (REPOSITORY / ".containerignore").read_text().splitlines() if line.startswith("!")}
    for stage in parse(IMAGE / name).stages:
        for step in stage.steps:
            if step.instruction == "COPY" and step.source_stage is None:
                for source in step.words[:-1]:
                    assert source in kept, f"{source} is not in .containerignore"
                    assert str(source).startswith("dist/") or (REPOSITORY / str(source)).is_file()


def test_the_image_of_the_broker_has_no_base() -> None:
    assert parse(IMAGE / "Containerfile").stages[-1].base == "scratch"


def test_the_settings_of_the_image_are_valid_and_log_json(tmp_path: Path) -> None:
    config = load(str(IMAGE / "server.properties"), ())
    assert config.warnings == []
    assert [str(path) for path in config.log_dirs] == ["/var/lib/odradek/data"]
    expected = {"/var/lib/odradek", "9092 9404"}
    last = parse(IMAGE / "Containerfile").stages[-1]
    assert {" ".join(map(str, last_words(last, name))) for name in ("VOLUME", "EXPOSE")} == expected
    program = ["/opt/odradek/venv/bin/python", "-P", "-m", "odradek.cli.container"]
    assert list(last_words(last, "ENTRYPOINT")) == program
    check = last_words(last, "HEALTHCHECK")
    assert list(check[check.index("CMD") + 1 :]) == [*program[:3], "odradek.cli.container.health"]
    assert CONFIG_FILE == "/etc/odradek/server.properties"
    assert "CMD" not in [step.instruction for step in last.steps]


@pytest.mark.parametrize("instruction", ["ENTRYPOINT", "HEALTHCHECK"])
def test_a_file_in_the_volume_is_not_imported(instruction: str, tmp_path: Path) -> None:
    words = last_words(parse(IMAGE / "Containerfile").stages[-1], instruction)
    command = [sys.executable, *words[words.index("/opt/odradek/venv/bin/python") + 1 :], "--no-such-option"]
    for module in ("json", "signal", "socket"):
        (tmp_path / f"{module}.py").write_text("print('of the volume')\n")
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY / "broker")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    # The health check finds a broker only where one is a child of process 1, as on a machine with the service.
    found = instruction == "HEALTHCHECK" and done.returncode == 0
    assert (done.stdout, done.returncode) == ("", 2 if instruction == "ENTRYPOINT" else 0 if found else 1)
    assert len(done.stderr.splitlines()) == (0 if found else 1)


@pytest.mark.parametrize("name", FILES)
def test_the_base_of_an_image_has_a_digest_that_the_builder_knows(name: str) -> None:
    file = parse(IMAGE / name)
    base = expand("${BASE}", {name: value or "" for name, value in file.arguments.items()})
    assert DEBIAN.fullmatch(base)[1] == "bookworm"


@pytest.mark.parametrize("base", ["docker.io/library/debian:bookworm-slim", f"debian:bookworm-slim@sha256:{'0' * 64}"])
def test_a_base_without_a_digest_or_a_registry_is_refused(base: str, tmp_path: Path) -> None:
    with pytest.raises(BuildFailed) as failed:
        start_from(base, tmp_path / "root", {}, "Containerfile:1")
    assert str(failed.value) == (
        f"Containerfile:1: FROM {base}: must be scratch, a stage, or docker.io/library/debian:RELEASE-slim@sha256:DIGEST"
    )
    assert not (tmp_path / "root").exists()
