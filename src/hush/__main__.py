"""`python -m hush`."""

from hush.cli import main

main()
