"""A group that knows its commands by name and by one line, and loads a command when it is called.

So `hush --help` takes neither NumPy nor torch, and each command only what it needs itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

__all__ = ["LazyCommand", "lazy_group"]


@dataclass(frozen=True)
class LazyCommand:
    """Where a command is.

    Attributes:
        module: in which it is.
        attribute: of the module: a function, or a Typer of several commands.
        line: what it does, for the list of commands.
    """

    module: str
    attribute: str
    line: str

    def load(self, name: str) -> Any:
        """The command itself."""
        found = getattr(import_module(self.module), self.attribute)
        if not isinstance(found, typer.Typer):
            alone = typer.Typer(rich_markup_mode="markdown", add_completion=False)
            alone.command(name)(found)
            found = alone
        found.info.name = name
        command = get_command(found)
        command.name = name
        return command


def lazy_group(commands: Mapping[str, LazyCommand]) -> type[TyperGroup]:
    """The class of a group with these commands, in this order."""

    class LazyGroup(TyperGroup):
        def list_commands(self, ctx: Any) -> list[str]:
            return list(commands)

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            """Only what a list of commands shows."""
            known = commands.get(cmd_name)
            return None if known is None else TyperCommand(cmd_name, help=known.line, short_help=known.line)

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            """The command that is to run, loaded; an unknown name is refused as usual."""
            name, command, rest = super().resolve_command(ctx, args)
            return name, command if name is None else commands[name].load(name), rest

    return LazyGroup
