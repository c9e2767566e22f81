"""Tests of answer pages: they are complete and escaped, and they never use the network."""

import json
import re
from html.parser import HTMLParser

from gpuyard.report.answer import (
    Answer,
    Bullets,
    Card,
    CardRow,
    Chart,
    Charts,
    DefinitionList,
    Drawing,
    Drawings,
    Part,
    RendererOnly,
    Section,
    Sentence,
    Table,
    Text,
)
from gpuyard.report.html import render_page

HOSTILE = "</script><img src=x onerror=alert(1)>\x1b]52;c;eA==\x07"
OPTION = {"yAxis": {"type": "value"}, "title": {"text": HOSTILE}, "series": [{"data": [1, None]}]}


class _TagChecker(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.visited: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.visited.append(tag)
        assert not any(name.startswith("on") for name, _ in attrs)
        if tag not in {"meta", "link", "br", "img"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def every_part(text: str) -> list[Part]:
    return [
        Sentence(text, "strong"),
        Bullets([text, Text(text, "bad")]),
        DefinitionList([(text, text)], title=text),
        Table(text, [text, "n"], [[text, "1.5"]], note=text),
        Table(text, [text], [[text]], folded=True),
        Chart("chart-a", text, {"all": OPTION}),
        Charts([Chart("chart-b", text, {"1": OPTION, "2": OPTION}, "1")], text, "s", (1, 2), 1),
        Drawing("<svg></svg>", caption=text),
        Drawings([Drawing("<svg></svg>", caption=text)]),
        CardRow([Card(text, [Sentence(text)], headline=text, badge=text, facts=text, sign="▲")]),
        Section(text, [Section(text, [Sentence(text)], folded=True)], anchor="deep"),
        Section(text, [RendererOnly("page", [Sentence(text)])], anchor="sheet", sheet=True),
    ]


def test_every_part_is_on_the_page_and_every_element_is_closed() -> None:
    page = render_page(Answer(every_part("words"), title="words", verb="cost", meta="words"))
    tags = _TagChecker()
    tags.feed(page)
    assert tags.open == []
    assert {"svg", "table", "details", "dl", "select", "nav", "figure", "h1"} <= set(tags.visited)


def test_a_hostile_name_is_shown_as_text() -> None:
    page = render_page(Answer(every_part(HOSTILE), title=HOSTILE, verb="cost", meta=HOSTILE))
    tags = _TagChecker()
    tags.feed(page)
    assert "img" not in tags.visited
    assert "\x1b" not in page
    assert "\x07" not in page
    (charts,) = re.findall(r'id="charts-json">(.*?)</script>', page, re.DOTALL)
    assert len(json.loads(charts)) == 2


def test_the_page_loads_nothing() -> None:
    page = render_page(Answer(every_part("x"), title="x", verb="cost"))
    assert "default-src 'none'" in page
    assert not re.search(r'(?:src|href)="(?!data:|#)', page.split("<script", 1)[0])
    bare = render_page(Answer([Sentence("x")], title="x", verb="cost"))
    assert "<script" not in bare
    assert "script-src 'none'" in bare
