"""Dataflow graphs that span machines, compiled by XLA, with state that outlives your session."""

import jflow.errors as errors
import jflow.lax as lax
import jflow.nn as nn
import jflow.numpy as numpy
import jflow.random as random
import jflow.train as train
from jflow.graph import Graph as Graph
from jflow.graph import Operation as Operation
from jflow.graph import Tensor as Tensor
from jflow.graph import container as container
from jflow.graph import control_dependencies as control_dependencies
from jflow.graph import default_session as get_default_session
from jflow.graph import device as device
from jflow.graph import get_default_graph as get_default_graph
from jflow.graph import gradients as gradients
from jflow.graph import name_scope as name_scope
from jflow.graph import reset_default_graph as reset_default_graph
from jflow.graph import variable_scope as variable_scope
from jflow.ops import Variable as Variable
from jflow.ops import assign as assign
from jflow.ops import assign_add as assign_add
from jflow.ops import assign_sub as assign_sub
from jflow.ops import constant as constant
from jflow.ops import global_variables as global_variables
from jflow.ops import global_variables_initializer as global_variables_initializer
from jflow.ops import group as group
from jflow.ops import identity as identity
from jflow.ops import no_op as no_op
from jflow.ops import placeholder as placeholder
from jflow.ops import trainable_variables as trainable_variables
from jflow.ops import variables_initializer as variables_initializer
from jflow.session import ConfigProto as ConfigProto
from jflow.session import RunOptions as RunOptions
from jflow.session import Session as Session
