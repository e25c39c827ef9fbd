"""`python -m agent_saga`: the command line, where the `agent-saga` script is not on the path."""

from agent_saga.cli import main

main()
