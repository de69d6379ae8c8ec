"""`python -m holdfast.runner`: see `holdfast.runner.process`."""

import sys

from holdfast.runner.process import main

main(sys.argv[1:])
