"""The command, run in the process of the tests."""

from command_runs import run as run
from command_runs import run_apart as run_apart
