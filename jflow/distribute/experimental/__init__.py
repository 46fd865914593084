"""Names of tf.distribute.experimental."""

from jflow.distribute.experimental import coordinator as coordinator
from jflow.distribute.experimental import partitioners as partitioners
from jflow.training.parameter_servers import ParameterServerStrategy as ParameterServerStrategy
