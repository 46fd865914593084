"""Backends, which run compiled steps in this process or on a cluster."""

from jflow.base.options import ConfigProto as ConfigProto
from jflow.base.options import RunOptions as RunOptions
from jflow.client.runtime.backend import Backend as Backend
from jflow.client.runtime.backend import DeviceInfo as DeviceInfo
from jflow.client.runtime.backend import Executable as Executable
from jflow.client.runtime.steps import Replacement as Replacement
from jflow.client.runtime.steps import add_origin as add_origin
from jflow.client.runtime.steps import explain_step as explain_step
from jflow.client.runtime.steps import place_step as place_step
from jflow.client.runtime.steps import placer_of as placer_of
from jflow.client.runtime.steps import register_step as register_step
from jflow.client.runtime.steps import replace_state as replace_state
from jflow.client.runtime.target import checked_config as checked_config
from jflow.client.runtime.target import checked_target as checked_target
from jflow.client.runtime.target import open_backend as open_backend
from jflow.client.runtime.target import reset_target as reset_target
from jflow.client.runtime.tracing import RunMetadata as RunMetadata
from jflow.client.runtime.tracing import trace_steps as trace_steps
