"""Sagas for the store tests: those of the port's conformance suite, in pytest-agent-saga."""

from pytest_agent_saga.conformance.sagas import KINDS as KINDS
from pytest_agent_saga.conformance.sagas import RECIPE as RECIPE
from pytest_agent_saga.conformance.sagas import Scribe as Scribe
from pytest_agent_saga.conformance.sagas import act as act
from pytest_agent_saga.conformance.sagas import change as change
from pytest_agent_saga.conformance.sagas import committed as committed
from pytest_agent_saga.conformance.sagas import decide as decide
from pytest_agent_saga.conformance.sagas import dump as dump
from pytest_agent_saga.conformance.sagas import everything as everything
from pytest_agent_saga.conformance.sagas import facts_in as facts_in
from pytest_agent_saga.conformance.sagas import gated as gated
from pytest_agent_saga.conformance.sagas import late_landing as late_landing
from pytest_agent_saga.conformance.sagas import lift as lift
from pytest_agent_saga.conformance.sagas import partial as partial
from pytest_agent_saga.conformance.sagas import rolled_back as rolled_back
from pytest_agent_saga.conformance.sagas import saga_id as saga_id
from pytest_agent_saga.conformance.sagas import settle as settle
from pytest_agent_saga.conformance.sagas import small as small
from pytest_agent_saga.conformance.sagas import varied as varied
