"""Options of sessions, connections and single steps, and of servers for their sessions."""

from jflow.base.options.config import ConfigProto as ConfigProto
from jflow.base.options.config import GPUOptions as GPUOptions
from jflow.base.options.config import GraphOptions as GraphOptions
from jflow.base.options.config import OptimizerOptions as OptimizerOptions
from jflow.base.options.config import RunOptions as RunOptions
from jflow.base.options.defaults import SessionDefaults as SessionDefaults
