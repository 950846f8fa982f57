"""A picture of plotly as SVG for a page: light or dark as its reader's screen is, and small."""

import re
import xml.etree.ElementTree as ET

from arith_lens.plotting.style import in_the_dark

_NAMESPACE = "http://www.w3.org/2000/svg"
_PAINTS = ("fill", "stroke", "stop-color")
_UNUSED = re.compile(r"class|style|data-.*|pointer-events|" + "|".join(_PAINTS))
_DEFAULTS = re.compile(r"(fill|stroke)-opacity:1|opacity:1|vector-effect:none|stroke:none")
_RGB = re.compile(r"rgb\((\d+), (\d+), (\d+)\)")
_RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
_COLOUR = re.compile(r"([\w-]+:\s*)(#[0-9a-f]{6})")
_NUMBER = re.compile(r"-?\d*\.\d{3,}")


def in_both_schemes(svg: str) -> str:
    """The same picture with its styles in a sheet, which has the dark page's colours, too."""
    ET.register_namespace("", _NAMESPACE)
    root = ET.fromstring(svg)
    names: dict[str, str] = {}
    for part in root.iter():
        style = _style(part)
        for name in filter(_UNUSED.fullmatch, [*part.attrib]):
            del part.attrib[name]
        for name, value in part.attrib.items():
            part.set(name, _NUMBER.sub(lambda one: f"{float(one[0]):.2f}", value))
        if style:
            part.set("class", names.setdefault(style, f"s{len(names)}"))
    sheet = ET.Element(f"{{{_NAMESPACE}}}style")
    sheet.text = with_dark("".join(f".{name}{{{style}}}" for style, name in names.items()))
    root.insert(0, sheet)
    if float(root.get("width", "inf")) < 600:  # a phone's picture fills its column
        root.set("width", "100%")
        del root.attrib["height"]
    return ET.tostring(root, encoding="unicode") + "\n"


def with_dark(sheet: str) -> str:
    """A sheet of styles, and after it the dark page's colours.

    Example:
        >>> with_dark(".dot{fill:#ffffff;stroke-width:2}")
        '.dot{fill:#ffffff;stroke-width:2}@media(prefers-color-scheme:dark){.dot{fill:#15181e}}'
    """
    dark = ""
    for selector, style in _RULE.findall(sheet):
        if colours := [name + in_the_dark(one) for name, one in _COLOUR.findall(style)]:
            dark += f"{selector.strip()}{{{';'.join(colours)}}}"
    return f"{sheet}@media(prefers-color-scheme:dark){{{dark}}}"


def _style(part: ET.Element) -> str:
    """The declarations of an element, without those that change nothing."""
    pairs = [one.split(":", 1) for one in part.get("style", "").split(";") if ":" in one]
    style = {name: part.attrib[name] for name in _PAINTS if name in part.attrib}
    style |= {name.strip(): value.strip() for name, value in pairs}
    for paint in ("fill", "stroke"):
        thin = [style.get(f"{paint}-{one}", "1").removesuffix("px") for one in ("opacity", "width")]
        if "0" in thin:
            style[paint] = "none"
        if style.get(paint) == "none":
            style = {name: value for name, value in style.items() if paint + "-" not in name}
    texts = [_RGB.sub(_hex, f"{name}:{value}") for name, value in style.items()]
    return ";".join(one for one in texts if not _DEFAULTS.fullmatch(one))


def _hex(colour: re.Match[str]) -> str:
    return "#{:02x}{:02x}{:02x}".format(*map(int, colour.groups()))
