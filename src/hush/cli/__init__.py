"""The command line: parse, call one function, print."""

from hush.cli.app import main

__all__ = ["main"]
