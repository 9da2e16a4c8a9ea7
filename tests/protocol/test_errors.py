"""Kafka's error codes: numbers, names and retriability are those of Kafka's class."""

from __future__ import annotations

import subprocess

import pytest

from odradek.protocol.errors import ErrorCode
from tests.oracles import jar, kafka_clients_jar
from tests.toolchains import require_command

PROGRAM = """
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.Errors;

public class Codes {
    public static void main(String[] arguments) {
        for (Errors error : Errors.values())
            System.out.println(error.code() + " " + error.name() + " " + (error.exception() instanceof RetriableException));
    }
}
"""


@pytest.mark.java
@pytest.mark.timeout(900)  # Maven may have to fetch
def test_codes_names_and_retriability_are_those_of_kafka(tmp_path) -> None:
    java = require_command("java", "default-jdk-headless")
    source = tmp_path / "Codes.java"
    source.write_text(PROGRAM)
    class_path = f"{kafka_clients_jar('4.3.0')}:{jar('org.slf4j', 'slf4j-api', '1.7.36')}"
    result = subprocess.run(
        [java, "-cp", class_path, str(source)], capture_output=True, text=True, check=True, timeout=600
    )
    theirs = {
        (int(code), name, retriable == "true") for code, name, retriable in map(str.split, result.stdout.splitlines())
    }
    assert {(error.value, error.name, error.retriable) for error in ErrorCode} == theirs


def test_every_error_has_a_unique_message() -> None:
    messages = [error.message for error in ErrorCode]
    assert all(messages)
    assert len(set(messages)) == len(messages)


def test_a_code_from_the_wire_becomes_an_error() -> None:
    assert ErrorCode(6) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER == 6
    with pytest.raises(ValueError, match="9999"):
        ErrorCode(9999)
