"""The public names by module, imported at first use."""

from jflow.api.lazy import on_first_use as on_first_use
