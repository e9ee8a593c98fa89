"""`python -m simplexdp` is the command line."""

from .cli import main

main()
