"""The runner: the process in which handlers run, and the objects that a handler works with."""

import sys

RUNNER_ARGV = (sys.executable, "-m", "holdfast.runner")
"""The command line that starts a runner. The program that starts a worker passes it to the executor."""
