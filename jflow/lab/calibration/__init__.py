"""Measuring what devices and links do, and what programs take, through jflow's own paths."""

from jflow.lab.calibration.exchanges import Reference as Reference
from jflow.lab.calibration.measure import calibrate as calibrate
from jflow.lab.calibration.regions import RegionTimes as RegionTimes
from jflow.lab.calibration.regions import measured_programs as measured_programs
from jflow.lab.calibration.report import calibration_report as calibration_report
