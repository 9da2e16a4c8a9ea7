"""The way of a request: the order in which it is decoded, judged, executed and answered, in each place."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.api import guarding, pipeline
from odradek.api.api import Place
from odradek.api.permits import Permits
from odradek.api.pipeline import Host, NotServed, Outcome, Pipeline
from odradek.api.row import ApiRow
from odradek.api.topics import delete_topics as api
from odradek.config.broker_config import BrokerConfig
from odradek.protocol import decode, encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import delete_topics
from odradek.protocol.schemas.header import RequestHeader, request_header_version
from odradek.security.acl import Operation
from odradek.stepwise import Later, Steps, Stepwise, waited

KEY, VERSION = delete_topics.API_KEY, 5
CLIENT = SimpleNamespace(peer="127.0.0.1:1", principal="User:a")


def payload(version: int = VERSION, names: int = 1) -> bytes:
    header = RequestHeader(request_api_key=KEY, request_api_version=version, correlation_id=7, client_id="c")
    request = delete_topics.Request(topic_names=[f"t{number}" for number in range(names)])
    return encode(header, request_header_version(KEY, version)) + encode(request, version)


class Rights(Permits):
    """Denies the topic `t0`."""

    def __init__(self, log: list[str]) -> None:
        super().__init__(object(), KEY)
        self.log = log

    def allows(self, operation: int, resource_type: int, name: str, quiet: bool = False) -> bool:
        if self.log[-1] != "guard":
            self.log.append("guard")
        return operation != Operation.DELETE or name not in ("t0", "kafka-cluster")


class Recorder(Host):
    """Notes what the pipeline does, in its order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log: list[str] = []
        self.until = time.monotonic() + 3600
        self.refused: Any = None
        self.later = Later()
        super().__init__(BrokerConfig({}), self._rights, Place.CONTROLLER)
        for name in ("decode", "errors_in_steps", "encode_in_steps", "merged"):
            monkeypatch.setattr(pipeline, name, self._noted(name, getattr(pipeline, name)))

    def _noted(self, name: str, function: Any) -> Any:
        def noted(*arguments: Any) -> Any:
            self.log.append(name)
            return function(*arguments)

        return noted

    def _rights(self, principal: str | None, peer: str, key: int) -> Permits:
        assert (principal, peer, key) == ("User:a", "127.0.0.1:1", KEY)
        self.log.append("rights")
        return Rights(self.log)

    def deadline(self, request: Any) -> float:
        self.log.append("deadline")
        return self.until

    def call(self, request: Any, row: ApiRow, version: int, permits: Permits) -> Any:
        return SimpleNamespace(version=version)

    def topic_exists(self, name: str) -> bool:
        return True

    def before(self, row: ApiRow, message: Any, version: int) -> Steps:
        self.log.append("controller")
        return self.refused
        yield

    def handled(self, row: ApiRow, holder: list[Any], call: Any) -> Steps:
        self.log.append("handler")
        make = delete_topics.Response
        results = [make.DeletableTopicResult(name=name) for name in holder[0].topic_names]
        yield from waited(lambda then: self.later.then(lambda: then(None)))
        return make(responses=results)

    def end(self, request: Any, row: ApiRow, message: Any, call: Any, response: Any) -> Steps:
        self.log.append("end")
        return response
        yield


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    return Recorder(monkeypatch)


def executed(host: Recorder, data: bytes) -> Any:
    host.later.set(None)
    return Stepwise(Pipeline(host).steps(SimpleNamespace(payload=data, context=CLIENT))).finish()


WAY = [
    "deadline", "decode", "rights", "controller", "guard", "handler", "merged", "end", "errors_in_steps", "encode_in_steps",
]  # fmt: skip


def codes(outcome: Outcome) -> dict[str, int]:
    response, _ = decode(delete_topics.Response, outcome.version, outcome.data, 5 if outcome.version >= 4 else 4)
    return {result.name: result.error_code for result in response.responses}


def test_the_order_is_this_one(host: Recorder) -> None:
    outcome = executed(host, payload(names=2))
    assert host.log == WAY
    assert codes(outcome) == {"t1": ErrorCode.NONE, "t0": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert outcome.data[:4] == (7).to_bytes(4, "big")
    assert outcome.errors == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] and not outcome.of_request


def test_a_request_for_which_nobody_waits_is_not_even_decoded(host: Recorder) -> None:
    host.until = time.monotonic() - 1
    assert executed(host, payload()) == NotServed(None, None)
    assert host.log == WAY[:1]


@pytest.mark.parametrize("data", [payload()[:-1], payload()[:12]])
def test_a_request_that_cannot_be_read_is_not_executed(host: Recorder, data: bytes) -> None:
    outcome = executed(host, data)
    assert outcome.row is not None and outcome.row.key == KEY and outcome.reason and outcome.malformed
    assert host.log == WAY[:2]


def test_a_header_that_cannot_be_read_is_not_an_api_that_is_not_served(host: Recorder) -> None:
    outcome = executed(host, payload()[:6])
    assert outcome.row is None and outcome.malformed and outcome.reason
    assert not executed(host, payload(version=5).replace(b"\0\x05", b"\0\x63", 1)).malformed


def test_the_encoded_request_is_released_before_the_handler(host: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    released: list[list[str]] = []
    monkeypatch.setattr(host, "decoded", lambda request: released.append(list(host.log)))
    executed(host, payload(names=2))
    assert released == [["deadline", "decode"]]


def test_a_request_with_too_many_elements_is_not_executed(host: Recorder) -> None:
    outcome = executed(host, payload(names=host.limits[KEY] + 1))
    assert "elements" in outcome.reason
    assert "rights" not in host.log


def test_a_version_that_is_not_served_is_not_decoded(host: Recorder) -> None:
    assert executed(host, payload(version=5).replace(b"\0\x05", b"\0\x63", 1)).row is None
    assert host.log == WAY[:1]


def test_a_broker_that_is_not_the_controller_judges_nothing(host: Recorder) -> None:
    make = delete_topics.Response
    host.refused = make(responses=[make.DeletableTopicResult(name="t0", error_code=ErrorCode.NOT_CONTROLLER)])
    assert codes(executed(host, payload())) == {"t0": ErrorCode.NOT_CONTROLLER}
    assert host.log == [step for step in WAY if step not in ("guard", "handler", "merged")]


def test_a_refused_request_reaches_no_handler(host: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    response = delete_topics.Response()
    monkeypatch.setattr(api, "guard", lambda asked: guarding.Refused(response))
    executed(host, payload())
    assert host.log == [step for step in WAY if step not in ("guard", "handler", "merged")]


def test_a_handler_that_closes_the_connection_has_no_outcome(host: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(row: ApiRow, holder: list[Any], call: Any) -> Steps:
        return None
        yield

    monkeypatch.setattr(host, "handled", closed)
    assert executed(host, payload(names=2)) is None
    assert "end" not in host.log


def test_a_handler_that_waits_continues_with_what_it_waited_for(host: Recorder) -> None:
    job = Stepwise(Pipeline(host).steps(SimpleNamespace(payload=payload(names=2), context=CLIENT)))
    assert job.step()
    while job.waits is None:
        assert job.step()
    assert host.log[-1] == "handler"
    with pytest.raises(RuntimeError, match="before it has the value"):
        job.step()
    host.later.set(None)
    assert codes(job.finish())["t1"] == ErrorCode.NONE


def test_an_error_of_a_handler_is_that_of_the_place(host: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise ConnectionError("the store is away")

    monkeypatch.setattr(host, "handled", fail)
    with pytest.raises(ConnectionError):
        executed(host, payload(names=2))

    def failed(error: Exception, row: ApiRow, message: Any, version: int) -> Steps:
        assert [str(error), message.topic_names] == ["the store is away", ["t1"]]
        return delete_topics.Response()
        yield

    monkeypatch.setattr(host, "failed", failed)
    assert codes(executed(host, payload(names=2))) == {}
