"""Writing SVG: elements whose texts and attributes are escaped by whoever serialises them, never by hand."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from functools import cache
from importlib.resources import files

from backstory.projections.graph.words import safe

SVG_BEGINS = '<svg xmlns="http://www.w3.org/2000/svg" class="backstory"'
"""How every picture begins, so that a file can be told to be one."""


@cache
def asset(name: str) -> str:
    """Return the text of a file that lies beside this one."""
    return files(__package__ or "").joinpath(name).read_text(encoding="utf-8")


class Ink:
    """Draws into one element.

    Names of classes, and whatever else is an attribute, are this package's own words and numbers; content is only ever
    text.
    """

    def __init__(self, element: ET.Element) -> None:
        self.element = element

    def inside(self, tag: str, **attributes: str | float) -> Ink:
        """Open an element within."""
        named = {name.rstrip("_").replace("_", "-"): _spelled(value) for name, value in attributes.items()}
        return Ink(ET.SubElement(self.element, tag, named))

    def says(self, tag: str, text: str, **attributes: str | float) -> None:
        """Put an element with a text within; whatever it is, it neither breaks the document nor steers its reader."""
        self.inside(tag, **attributes).element.text = safe(text)


def new_picture(width: float, height: float, title: str, told: str) -> Ink:
    """Begin an SVG document that carries its own style and tells a reader of screens what it is."""
    picture = Ink(
        ET.Element(
            "svg",
            {
                "xmlns": "http://www.w3.org/2000/svg",
                "class": "backstory",
                "width": _spelled(width),
                "height": _spelled(height),
                "viewBox": f"0 0 {_spelled(width)} {_spelled(height)}",
                "role": "graphics-document document",
                "aria-labelledby": "title told",
            },
        )
    )
    picture.says("title", title, id="title")
    picture.says("desc", told, id="told")
    picture.says("style", asset("picture.css"))
    picture.inside("rect", class_="paper", width=width, height=height)
    return picture


def written(picture: Ink) -> str:
    """Return the document as text."""
    return ET.tostring(picture.element, encoding="unicode") + "\n"


def _spelled(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")
