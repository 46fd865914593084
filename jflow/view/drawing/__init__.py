"""Drawing a diagram: a layered layout with a lane for each device, and SVG."""

from jflow.view.drawing.svg import draw as draw
