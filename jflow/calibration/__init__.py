"""Measuring what devices and links do, and what programs take, through jflow's own paths."""

from jflow.calibration.measure import calibrate as calibrate
from jflow.calibration.reference import Reference as Reference
from jflow.calibration.regions import RegionTimes as RegionTimes
from jflow.calibration.regions import measured_programs as measured_programs
from jflow.calibration.report import report as report
