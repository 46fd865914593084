"""`AdvisingParser`: says what a misspelt command or option may mean."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

from jflow.base.suggestions import nearest


class AdvisingParser(argparse.ArgumentParser):
    """A parser whose errors name the nearest command, noun, choice or option."""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            advice = _advice(str(value), map(str, action.choices or ()))
            if not advice:
                raise
            raise argparse.ArgumentError(action, f"there is no {value!r}{advice}") from error

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> argparse.Namespace:
        """See `argparse.ArgumentParser.parse_args`."""
        options, unknown = self.parse_known_args(args, namespace)
        if unknown:
            known = [*getattr(options, "known_options", ())]
            self.error(f"unrecognized arguments: {' '.join(unknown)}{_advice(unknown[0], known)}")
        return options

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """See `argparse.ArgumentParser.parse_known_args`; notes the options of the command."""
        options, unknown = super().parse_known_args(args, namespace)
        if unknown and not hasattr(options, "known_options"):  # the innermost command is first
            options.known_options = [*self._option_string_actions]
        return options, unknown


def _advice(word: str, known: Iterable[str]) -> str:
    near = nearest(word.partition("=")[0], known, cutoff=0.6)
    return f"; did you mean {near!r}?" if near else ""
