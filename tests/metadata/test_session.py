"""The table of the broker's session, and what remains to be done after failures."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.metadata.session import MOVES, Action, SessionEvent, SessionMachine, SessionState

CONNECTED, SUSPENDED, LOST, NEW_SESSION, WRONG_TREE, TIMEOUT = SessionEvent
EVENTS = st.lists(st.sampled_from(SessionEvent))
REJOIN = [Action.REREAD, Action.REGISTER, Action.ELECT]


def taken(machine):
    """Take all actions that are possible now."""
    actions = []
    while (action := machine.next_action()) is not None:
        actions.append(action)
        machine.done(action)
    return actions


@pytest.mark.parametrize(
    ("events", "state", "actions"),
    [
        ([CONNECTED], SessionState.CONNECTED, []),
        ([SUSPENDED], SessionState.SUSPENDED, []),
        ([SUSPENDED, CONNECTED], SessionState.CONNECTED, [Action.RESUME]),
        ([SUSPENDED, CONNECTED, SUSPENDED], SessionState.SUSPENDED, []),
        ([SUSPENDED, CONNECTED, SUSPENDED, CONNECTED], SessionState.CONNECTED, [Action.RESUME]),
        ([SUSPENDED, TIMEOUT], SessionState.OVERDUE, [Action.RESIGN]),
        ([SUSPENDED, TIMEOUT, CONNECTED], SessionState.CONNECTED, [Action.RESIGN, Action.RESUME]),
        ([SUSPENDED, TIMEOUT, LOST], SessionState.LOST, [Action.RESIGN]),
        ([SUSPENDED, LOST], SessionState.LOST, [Action.RESIGN]),
        ([SUSPENDED, LOST, NEW_SESSION], SessionState.CONNECTED, [Action.RESIGN, *REJOIN]),
        ([SUSPENDED, TIMEOUT, LOST, NEW_SESSION], SessionState.CONNECTED, [Action.RESIGN, *REJOIN]),
        ([SUSPENDED, TIMEOUT, NEW_SESSION], SessionState.CONNECTED, [Action.RESIGN, *REJOIN]),
        ([SUSPENDED, NEW_SESSION], SessionState.CONNECTED, [Action.RESIGN, *REJOIN]),
        ([SUSPENDED, CONNECTED, LOST, NEW_SESSION], SessionState.CONNECTED, [Action.RESIGN, *REJOIN]),
        ([NEW_SESSION, SUSPENDED, CONNECTED], SessionState.CONNECTED, [Action.RESIGN, *REJOIN]),
        ([LOST, CONNECTED], SessionState.CONNECTED, [Action.RESIGN, *REJOIN]),
        ([TIMEOUT], SessionState.CONNECTED, []),
        ([WRONG_TREE], SessionState.CONNECTED, [Action.RESIGN, *REJOIN]),
        ([SUSPENDED, WRONG_TREE], SessionState.SUSPENDED, [Action.RESIGN]),
        ([SUSPENDED, WRONG_TREE, CONNECTED], SessionState.CONNECTED, [Action.RESIGN, *REJOIN]),
        ([SUSPENDED, TIMEOUT, WRONG_TREE, CONNECTED], SessionState.CONNECTED, [Action.RESIGN, *REJOIN]),
        ([LOST, WRONG_TREE, NEW_SESSION], SessionState.CONNECTED, [Action.RESIGN, *REJOIN]),
    ],
)
def test_the_table(events, state, actions):
    machine = SessionMachine()
    for event in events:
        machine.event(event)
    assert (machine.state, taken(machine)) == (state, actions)
    assert taken(machine) == []


def test_every_state_knows_every_event():
    assert {(state, event) for state, moves in MOVES.items() for event in moves} == set(
        itertools.product(SessionState, SessionEvent)
    )


@given(EVENTS)
def test_a_new_session_always_leads_to_a_registration_in_it(events):
    machine = SessionMachine()
    for event in events:
        machine.event(event)
    machine.event(NEW_SESSION)
    assert taken(machine)[-3:] == REJOIN


@given(EVENTS)
def test_only_a_broker_that_is_connected_does_more_than_resign(events):
    machine = SessionMachine()
    for event in events:
        machine.event(event)
        action = machine.next_action()
        assert action in (None, Action.RESIGN) or machine.state is SessionState.CONNECTED


@given(EVENTS)
def test_a_broker_without_its_session_is_never_the_controller(events):
    """Whatever happens, a loss of the session leads to a resignation before anything else is done."""
    machine, controller = SessionMachine(), True
    for event in events:
        machine.event(event)
        for action in taken(machine):
            controller = action in (Action.ELECT, Action.RESUME) or (controller and action is not Action.RESIGN)
        assert not (controller and machine.state in (SessionState.OVERDUE, SessionState.LOST))


def test_an_action_that_failed_is_repeated_and_an_action_requested_meanwhile_too():
    machine = SessionMachine()
    machine.event(NEW_SESSION)
    assert machine.next_action() is Action.RESIGN
    machine.done(Action.RESIGN)
    assert machine.next_action() is Action.REREAD
    assert machine.next_action() is Action.REREAD, "it failed"
    machine.event(SUSPENDED)
    assert machine.next_action() is None
    machine.event(LOST)
    machine.event(NEW_SESSION)
    machine.done(Action.REREAD)  # of the former session
    assert taken(machine) == [Action.RESIGN, *REJOIN]
