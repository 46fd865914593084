"""`make_template`: functions that make their variables once, and use them in each call."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from jflow.client.ops import Variable
from jflow.client.variables.scope import VariableScope, variable_scope
from jflow.compiler.graph import GraphKeys
from jflow.compiler.graph import get_default_graph as _default_graph


def make_template(
    name_: str,
    func_: Callable[..., Any],
    create_scope_now_: bool = False,
    unique_name_: str | None = None,
    custom_getter_: Callable[..., Any] | None = None,
    **kwargs: Any,
) -> Template:
    """Returns a function whose variables are made by its first call, and used by all.

    Args:
      name_: the name of its variable scope, which is made unique.
      func_: the function. It makes variables by `get_variable`; their names may not depend on
        arguments that differ between calls.
      create_scope_now_: whether the scope is that of this call, and not of the first call of the
        function.
      unique_name_: the name of its variable scope as it is; None for `name_`.
      custom_getter_: as for `variable_scope`.
      **kwargs: arguments of the function.

    Raises:
      ValueError: if `name_` is None.
    """
    if name_ is None:
        raise ValueError("make_template needs a name, got None")
    scope = partial(variable_scope, unique_name_, name_, custom_getter=custom_getter_)
    template = Template(name_, partial(func_, **kwargs) if kwargs else func_, scope)
    if create_scope_now_:
        with scope(auxiliary_name_scope=False) as template.variable_scope:
            pass
    return template


class Template:
    """A function with variables of its own; see `make_template`.

    Args:
      name: the name that it was given.
      func: the function.
      open_scope: opens its variable scope for the first time.

    Attributes:
      variable_scope: its scope; None before that is opened.
    """

    def __init__(self, name: str, func: Callable[..., Any], open_scope: Callable[..., Any]) -> None:
        self._name = name
        self._func = func
        self._open_scope = open_scope
        self._has_variables = False
        self.variable_scope: VariableScope | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function in its variable scope.

        Raises:
          ValueError: if another call than the first one makes a trainable variable.
        """
        if self.variable_scope is None:
            with self._open_scope() as self.variable_scope:
                return self._called(args, kwargs)
        with variable_scope(self.variable_scope, reuse=self._has_variables):
            return self._called(args, kwargs)

    def _called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        trainable = _default_graph().get_collection_ref(GraphKeys.TRAINABLE_VARIABLES)
        n_before = len(trainable)
        result = self._func(*args, **kwargs)
        if self._has_variables and len(trainable) > n_before:
            raise ValueError(
                f"the template {self._name!r} has made the trainable variables "
                f"{[v.name for v in trainable[n_before:]]} in a call that was not the first; make "
                "them by get_variable, so that each call uses the same"
            )
        self._has_variables = True
        return result

    @property
    def name(self) -> str:
        """The name that it was given."""
        return self._name

    @property
    def func(self) -> Callable[..., Any]:
        """The function."""
        return self._func

    @property
    def variable_scope_name(self) -> str | None:
        """The name of its scope, with "/"; None before that is opened."""
        return None if self.variable_scope is None else f"{self.variable_scope.name}/"

    @property
    def variables(self) -> list[Variable]:
        """Its global and local variables."""
        return self.global_variables + self.local_variables

    @property
    def trainable_variables(self) -> list[Variable]:
        """Its trainable variables."""
        return self._collected(GraphKeys.TRAINABLE_VARIABLES)

    @property
    def non_trainable_variables(self) -> list[Variable]:
        """Its global variables that are not trainable."""
        trainable = self.trainable_variables
        return [v for v in self.global_variables if not any(v is other for other in trainable)]

    @property
    def global_variables(self) -> list[Variable]:
        """Its global variables."""
        return self._collected(GraphKeys.GLOBAL_VARIABLES)

    @property
    def local_variables(self) -> list[Variable]:
        """Its local variables."""
        return self._collected(GraphKeys.LOCAL_VARIABLES)

    weights = variables
    trainable_weights = trainable_variables

    @property
    def var_scope(self) -> VariableScope | None:
        """Its scope; TensorFlow's earlier name."""
        return self.variable_scope

    def _collected(self, key: str) -> list[Variable]:
        if not self._has_variables:
            return []
        return _default_graph().get_collection(key, self.variable_scope_name)
