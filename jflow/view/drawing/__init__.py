"""Draws diagrams: a layered layout with a lane for each device, as SVG."""

from jflow.view.drawing.svg import draw as draw
