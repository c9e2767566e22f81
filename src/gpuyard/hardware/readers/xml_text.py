"""XML of unknown origin as elements that know their place. Nothing outside the text is ever fetched, and a
document that declares entities of its own is refused: neither hwloc nor nvidia-smi writes one."""

import itertools
from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat

from gpuyard.errors import UserMistake, quoted

_DEEPEST = 200  # hwloc nests about 15 elements
_MOST_ELEMENTS = 100_000
_LONGEST_TEXT = 100_000  # characters inside one element


@dataclass(slots=True)
class Element:
    """One element of the document."""

    tag: str
    attributes: dict[str, str]
    place: str  # source:line:column
    children: list["Element"] = field(default_factory=list)
    text: str = ""

    def all(self, tag: str) -> list["Element"]:
        return [child for child in self.children if child.tag == tag]

    def find(self, *path: str) -> str | None:
        """The text at the end of this path, None where it is missing, empty or "N/A"."""
        here = self
        for tag in path:
            found = here.all(tag)
            if not found:
                return None
            here = found[0]
        text = here.text.strip()
        return text if text not in ("", "N/A") else None


def parse_xml(text: str, source: str) -> Element:
    """The root element; a `UserMistake` with line and column where the text is not XML."""
    parser = expat.ParserCreate("utf-8")
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
    parser.buffer_text = True  # words come together, not one by one
    top = Element("", {}, source)
    stack = [top]
    elements = itertools.count(1)

    def place() -> str:
        return f"{source}:{parser.CurrentLineNumber}:{parser.CurrentColumnNumber + 1}"

    def start(tag: str, attributes: dict[str, str]) -> None:
        if len(stack) > _DEEPEST:
            raise UserMistake(f"{place()}: elements are nested deeper than {_DEEPEST}")
        if next(elements) > _MOST_ELEMENTS:
            raise UserMistake(f"{place()}: more than {_MOST_ELEMENTS:,} elements")
        element = Element(tag, attributes, place())
        stack[-1].children.append(element)
        stack.append(element)

    def end(_tag: str) -> None:
        stack.pop()

    def characters(words: str) -> None:
        here = stack[-1]
        if len(here.text) + len(words) > _LONGEST_TEXT:
            raise UserMistake(f"{place()}: more than {_LONGEST_TEXT:,} characters in one element")
        here.text += words

    def entity(name: str, *_declared: Any) -> None:
        raise UserMistake(f"{place()}: entity declarations are not supported, found {quoted(name)}")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = characters
    parser.EntityDeclHandler = entity
    try:
        parser.Parse(text, True)
    except (expat.ExpatError, UnicodeEncodeError) as error:
        if isinstance(error, UnicodeEncodeError):
            raise UserMistake(f"{source}: malformed XML: half a character") from None
        reason = expat.ErrorString(error.code)
        raise UserMistake(
            f"{source}:{error.lineno}:{error.offset + 1}: malformed XML: {reason}"
        ) from None
    return top.children[0]
