"""Backends, which run compiled steps in this process or on a cluster."""

from jflow.options import ConfigProto as ConfigProto
from jflow.options import RunOptions as RunOptions
from jflow.runtime.backend import Backend as Backend
from jflow.runtime.backend import DeviceInfo as DeviceInfo
from jflow.runtime.backend import Executable as Executable
from jflow.runtime.steps import Replacement as Replacement
from jflow.runtime.steps import add_origin as add_origin
from jflow.runtime.steps import explain_step as explain_step
from jflow.runtime.steps import place_step as place_step
from jflow.runtime.steps import placer_of as placer_of
from jflow.runtime.steps import register_step as register_step
from jflow.runtime.steps import replace_state as replace_state
from jflow.runtime.target import checked_config as checked_config
from jflow.runtime.target import checked_target as checked_target
from jflow.runtime.target import open_backend as open_backend
from jflow.runtime.target import reset_target as reset_target
from jflow.runtime.tracing import RunMetadata as RunMetadata
from jflow.runtime.tracing import trace_steps as trace_steps
