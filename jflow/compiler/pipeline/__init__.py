"""The compile pipeline: from a step request to plans and the programs that they name."""

from jflow.compiler.pipeline.pipeline import CompiledStep as CompiledStep
from jflow.compiler.pipeline.pipeline import StepRequest as StepRequest
from jflow.compiler.pipeline.pipeline import compile_placed as compile_placed
from jflow.compiler.pipeline.pipeline import compile_step as compile_step
from jflow.compiler.pipeline.pipeline import expanded as expanded
from jflow.compiler.pipeline.pipeline import has_open_loops as has_open_loops
from jflow.compiler.pipeline.pipeline import opening_on as opening_on
from jflow.compiler.pipeline.pipeline import prune_step as prune_step
from jflow.compiler.pipeline.pipeline import waits_for_ranks as waits_for_ranks
from jflow.compiler.pipeline.regions import Region as Region
from jflow.compiler.pipeline.regions import region_problem as region_problem
