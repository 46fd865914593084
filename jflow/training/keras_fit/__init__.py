"""`fit` of Keras models whose variables are on parameter servers and whose steps run on workers."""

from jflow.training.keras_fit.fit import DistributedFit as DistributedFit
from jflow.training.keras_fit.fit import distribute_fit as distribute_fit
