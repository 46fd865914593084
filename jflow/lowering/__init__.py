"""From segments to XLA programs: building, naming by digest, shipping and compiling."""

from jflow.lowering.cache import ProgramCache as ProgramCache
from jflow.lowering.compile import Executable as Executable
from jflow.lowering.compile import compile_exported as compile_exported
from jflow.lowering.compile import compile_jaxpr as compile_jaxpr
from jflow.lowering.compile import is_bounded as is_bounded
from jflow.lowering.compile import prepare as prepare
from jflow.lowering.explain import explained as explained
from jflow.lowering.export import digest_of as digest_of
from jflow.lowering.export import export as export
from jflow.lowering.export import export_platform as export_platform
from jflow.lowering.segment import Lowered as Lowered
from jflow.lowering.segment import lower as lower
