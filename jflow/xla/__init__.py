"""XLA programs: serialization, digests, compilation, cache; and non-public names of JAX."""

from jflow.xla import versions as versions  # checks JAX before anything else is taken from it
from jflow.xla.cache import ProgramCache as ProgramCache
from jflow.xla.compile import CompiledProgram as CompiledProgram
from jflow.xla.compile import compile_exported as compile_exported
from jflow.xla.compile import is_bounded as is_bounded
from jflow.xla.export import digest_of as digest_of
from jflow.xla.export import export_platform as export_platform
from jflow.xla.validation import ValidProgram as ValidProgram
from jflow.xla.validation import inspected as inspected
