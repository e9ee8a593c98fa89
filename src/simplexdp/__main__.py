"""`python -m simplexdp` is the command line."""

from simplexdp.cli import main

main()
