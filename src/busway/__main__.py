"""`python -m busway` is `busway`."""

from busway.cli import main

main()
