"""The client's handle on a running graph, local or on a cluster."""

from jflow.session.backend import DeviceInfo as DeviceInfo
from jflow.session.backend import Step as Step
from jflow.session.backend import StepKey as StepKey
from jflow.session.backend import add_origin as add_origin
from jflow.session.backend import place_step as place_step
from jflow.session.backend import register_step as register_step
from jflow.session.config import ConfigProto as ConfigProto
from jflow.session.config import RunOptions as RunOptions
from jflow.session.session import Session as Session
from jflow.session.target import checked_config as checked_config
from jflow.session.target import checked_target as checked_target
from jflow.session.target import open_backend as open_backend
