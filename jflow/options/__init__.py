"""Options of sessions, connections and single steps, and how a server tells its own."""

from jflow.options.config import ConfigProto as ConfigProto
from jflow.options.config import GPUOptions as GPUOptions
from jflow.options.config import GraphOptions as GraphOptions
from jflow.options.config import OptimizerOptions as OptimizerOptions
from jflow.options.defaults import SessionDefaults as SessionDefaults
from jflow.options.run_options import RunOptions as RunOptions
