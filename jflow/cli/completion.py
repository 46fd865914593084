"""`jflow completion`: completion of commands and options at the Tab key, by argcomplete."""

from __future__ import annotations

import argparse
import os
import sys
from importlib.util import find_spec

_SHELLS = ("bash", "zsh", "fish")


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command to those of `jflow`."""
    completion = commands.add_parser(
        "completion", help="prints what a shell needs to complete commands at the Tab key"
    )
    completion.add_argument("shell", choices=_SHELLS, help="such as: jflow completion bash")
    completion.set_defaults(run=_print_script)


def complete(parser: argparse.ArgumentParser) -> None:
    """Answers a shell that asks how a command line may go on, and exits; else does nothing."""
    if "_ARGCOMPLETE" in os.environ and find_spec("argcomplete") is not None:
        import argcomplete  # noqa: PLC0415 - only a shell needs it

        argcomplete.autocomplete(parser)


def _print_script(options: argparse.Namespace) -> int:
    if find_spec("argcomplete") is None:
        print("jflow: completion needs `pip install 'jflow[cli]'`", file=sys.stderr)
        return 1
    from argcomplete.shell_integration import shellcode  # noqa: PLC0415 - as above

    print(shellcode(["jflow"], shell=options.shell))
    return 0
