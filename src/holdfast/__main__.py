"""`python -m holdfast`: the command line, without an installed script."""

from holdfast.cli.main import main

main()
