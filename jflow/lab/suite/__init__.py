"""The benchmark that compares placement strategies: cases, runner, statistics, page."""

from jflow.lab.suite.comparison import Comparison as Comparison
from jflow.lab.suite.comparison import Measuring as Measuring
from jflow.lab.suite.comparison import SuiteOptions as SuiteOptions
from jflow.lab.suite.comparison import compare as compare
from jflow.lab.suite.processes import ProcessMeasurer as ProcessMeasurer
