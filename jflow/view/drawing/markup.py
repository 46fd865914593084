"""Builders of SVG elements and their colours; characters that XML forbids are replaced."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from jflow.base.text import printable
from jflow.view.drawing.layout import Rect

SEND = "#D55E00"
"""The colour of transfers; no device has it."""

INK = "#1F2933"
MUTED = "#52606D"
FAINT = "#9AA5B1"
PAPER = "#FFFFFF"

_DEVICES = ("#0072B2", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#B8A900")
_SHADES = ((PAPER, 0.0), ("#000000", 0.4), (PAPER, 0.45))


def device_colour(number: int) -> str:
    """Returns the colour of a device by its number from 0; eighteen are distinct."""
    towards, part = _SHADES[number // len(_DEVICES) % len(_SHADES)]
    return mixed(_DEVICES[number % len(_DEVICES)], towards, part)


def mixed(colour: str, other: str, part: float) -> str:
    """Interpolates between two colours "#RRGGBB"; `part` is from 0 to 1."""
    pairs = zip(_channels(colour), _channels(other), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * part):02X}" for a, b in pairs)


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


Element = ET.Element

_STYLE = f"""
.jflow text {{ font-family: system-ui, "Segoe UI", "Helvetica Neue", Arial, sans-serif;
  fill: {INK}; }}
.jflow .name {{ font-size: 12px; font-weight: 600; text-anchor: middle; }}
.jflow .detail {{ font-size: 10px; fill: {MUTED}; text-anchor: middle; }}
.jflow .device {{ font-size: 13px; font-weight: 600; }}
.jflow .entry {{ font-size: 11px; }}
.jflow .line {{ fill: none; stroke-width: 1.3; }}
.jflow .reach {{ fill: none; stroke: transparent; stroke-width: 9; }}
.jflow .data .line {{ stroke: {FAINT}; }}
.jflow .data .head {{ fill: {FAINT}; }}
.jflow .control .line {{ stroke: {FAINT}; stroke-dasharray: 1.5 3.5;
  stroke-linecap: round; }}
.jflow .control .head {{ fill: {FAINT}; }}
.jflow .state .line {{ stroke-width: 3.4; stroke-opacity: 0.3; }}
.jflow .crossing .line {{ stroke: {SEND}; }}
.jflow .crossing .head {{ fill: {SEND}; }}
.jflow .data.crossing .line {{ stroke-width: 2; stroke-dasharray: 7 4; }}
.jflow .bytes {{ font-size: 10px; font-weight: 600; fill: {SEND}; text-anchor: middle; }}
.jflow .pill {{ fill: {PAPER}; stroke: {SEND}; stroke-width: 0.8; }}
.jflow .op:hover .box {{ stroke-width: 3; }}
.jflow .arrow:hover .line {{ stroke-width: 3.4; stroke-opacity: 1; }}
"""


def document(width: float, height: float, label: str, role: str = "img") -> Element:
    """Returns an empty white picture of `width` by `height` pixels; `label` describes it.

    `role` is its role for assistive technology: "group" if it has checkboxes.
    """
    size = {"width": number(width), "height": number(height)}
    root = Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "class": "jflow",
            "viewBox": f"0 0 {size['width']} {size['height']}",
            **size,
            "role": role,
            "aria-label": printable(label, allowed="\n"),
        },
    )
    ET.SubElement(root, "style").text = _STYLE
    ET.SubElement(root, "rect", {**size, "fill": PAPER})
    return root


def group(parent: Element, kind: str, title: str = "") -> Element:
    """Adds a group of class `kind`; `title` is its tooltip."""
    element = ET.SubElement(parent, "g", {"class": kind})
    if title:
        ET.SubElement(element, "title").text = printable(title, allowed="\n")
    return element


def rect(parent: Element, bounds: Rect, **attributes: str) -> None:
    """Adds a rectangle. `kind` is its class; an underscore in an attribute means a hyphen."""
    geometry = {
        "x": number(bounds.x),
        "y": number(bounds.y),
        "width": number(bounds.width),
        "height": number(bounds.height),
    }
    ET.SubElement(parent, "rect", geometry | _named(attributes))


def path(parent: Element, data: str, **attributes: str) -> None:
    """Adds a path; attributes as for `rect`."""
    ET.SubElement(parent, "path", {"d": data} | _named(attributes))


def text(parent: Element, x: float, y: float, content: str, **attributes: str) -> None:
    """Adds a line of text by its baseline; attributes as for `rect`."""
    bounds = {"x": number(x), "y": number(y)}
    ET.SubElement(parent, "text", bounds | _named(attributes)).text = printable(
        content, allowed="\n"
    )


def add_checkbox(parent: Element, bounds: Rect, kind: str, title: str) -> None:
    """Adds a checkbox as large as a rectangle, of class `kind`; it works where SVG is in HTML."""
    sides = {"x": bounds.x, "y": bounds.y, "width": bounds.width, "height": bounds.height}
    geometry = {name: number(side) for name, side in sides.items()}
    outer = ET.SubElement(parent, "foreignObject", geometry)
    look = {"xmlns": "http://www.w3.org/1999/xhtml", "title": printable(title, allowed="\n")}
    label = ET.SubElement(outer, "label", look)
    name = "show what is inside of " + printable(title.split("\n", maxsplit=1)[0])
    ET.SubElement(label, "input", {"type": "checkbox", "class": kind, "aria-label": name})


def number(value: float) -> str:
    """Formats a length in pixels, to a tenth."""
    return f"{value:.1f}".removesuffix(".0")


def serialized(root: Element) -> str:
    """Serializes the document."""
    ET.indent(root)
    return ET.tostring(root, encoding="unicode") + "\n"


def _named(attributes: dict[str, str]) -> dict[str, str]:
    named = {key.replace("_", "-"): value for key, value in attributes.items()}
    if "kind" in named:
        named["class"] = named.pop("kind")
    return named


def text_width(text: str, font_size: float, *, bold: bool = False) -> float:
    """Estimates the width of a text in pixels, for the widest common sans-serif font."""
    width = font_size * sum(_advance(char) for char in text)
    return width * 1.1 if bold else width


def _advance(char: str) -> float:
    if char in "ijl.,:;|!'/ ":
        return 0.31
    if char in "frt()[]-":
        return 0.4
    if char in "mwMW@%…":
        return 0.95
    return 0.7 if char.isupper() else 1.0 if ord(char) > 0x2FF else 0.61
