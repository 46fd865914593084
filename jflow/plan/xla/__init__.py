"""XLA programs: serialization, digests, compilation, cache; and non-public names of JAX."""

from jflow.plan.xla import versions as versions  # checks JAX before anything else is taken from it
from jflow.plan.xla.cache import ProgramCache as ProgramCache
from jflow.plan.xla.compile import CompiledProgram as CompiledProgram
from jflow.plan.xla.compile import compile_exported as compile_exported
from jflow.plan.xla.compile import is_bounded as is_bounded
from jflow.plan.xla.export import digest_of as digest_of
from jflow.plan.xla.export import export_platform as export_platform
from jflow.plan.xla.validation import ValidProgram as ValidProgram
from jflow.plan.xla.validation import inspected as inspected
