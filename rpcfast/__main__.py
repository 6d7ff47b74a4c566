"""`python -m rpcfast` is the command `rpcfast`."""

from rpcfast.cli import main

main()
