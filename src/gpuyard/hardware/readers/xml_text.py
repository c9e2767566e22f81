"""Parse untrusted XML into elements that know their line and column.

The parser never fetches anything, and it rejects documents that declare entities, which neither hwloc nor
nvidia-smi writes.
"""

import itertools
from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat

from gpuyard.errors import UserMistake, quote

_MAX_DEPTH = 200  # hwloc nests about 15 elements
_MAX_ELEMENTS = 100_000
_MAX_TEXT_LENGTH = 100_000  # characters in one element


@dataclass(slots=True)
class Element:
    tag: str
    attributes: dict[str, str]
    place: str  # source:line:column
    children: list["Element"] = field(default_factory=list)
    text: str = ""

    def all(self, tag: str) -> list["Element"]:
        """Return the children with this tag."""
        return [child for child in self.children if child.tag == tag]

    def find(self, *path: str) -> str | None:
        """Return the text of the element at a path; None if it is missing, empty, or "N/A"."""
        element = self
        for tag in path:
            matches = element.all(tag)
            if not matches:
                return None
            element = matches[0]
        text = element.text.strip()
        return text if text not in ("", "N/A") else None


def parse_xml(text: str, source: str) -> Element:
    """Return the root element; raise `UserMistake` with line and column if the text is not XML."""
    parser = expat.ParserCreate("utf-8")
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
    parser.buffer_text = True  # report text in large chunks
    document = Element("", {}, source)
    stack = [document]
    elements = itertools.count(1)

    def get_place() -> str:
        return f"{source}:{parser.CurrentLineNumber}:{parser.CurrentColumnNumber + 1}"

    def start_element(tag: str, attributes: dict[str, str]) -> None:
        if len(stack) > _MAX_DEPTH:
            raise UserMistake(f"{get_place()}: elements are nested deeper than {_MAX_DEPTH}")
        if next(elements) > _MAX_ELEMENTS:
            raise UserMistake(f"{get_place()}: more than {_MAX_ELEMENTS:,} elements")
        element = Element(tag, attributes, get_place())
        stack[-1].children.append(element)
        stack.append(element)

    def end_element(_tag: str) -> None:
        stack.pop()

    def add_text(chunk: str) -> None:
        element = stack[-1]
        if len(element.text) + len(chunk) > _MAX_TEXT_LENGTH:
            raise UserMistake(
                f"{get_place()}: more than {_MAX_TEXT_LENGTH:,} characters in one element"
            )
        element.text += chunk

    def reject_entity(name: str, *_declaration: Any) -> None:
        raise UserMistake(
            f"{get_place()}: entity declarations are not supported, got {quote(name)}"
        )

    parser.StartElementHandler = start_element
    parser.EndElementHandler = end_element
    parser.CharacterDataHandler = add_text
    parser.EntityDeclHandler = reject_entity
    try:
        parser.Parse(text, True)
    except (expat.ExpatError, UnicodeEncodeError) as error:
        if isinstance(error, UnicodeEncodeError):
            raise UserMistake(f"{source}: malformed XML: incomplete character") from None
        reason = expat.ErrorString(error.code)
        raise UserMistake(
            f"{source}:{error.lineno}:{error.offset + 1}: malformed XML: {reason}"
        ) from None
    return document.children[0]
