"""How tests read a page: as a person sees it, as its scripts see it, as a parser sees it."""

import json
import re
from html.parser import HTMLParser

__all__ = ["block", "tags", "visible"]


def visible(page):
    """The text a reader sees: no scripts, styles or markup."""

    class Reader(HTMLParser):
        quiet, parts = 0, []

        def handle_starttag(self, tag, attrs):
            self.quiet += tag in ("script", "style")

        def handle_endtag(self, tag):
            self.quiet -= tag in ("script", "style")

        def handle_data(self, data):
            if not self.quiet:
                self.parts.append(data)

    reader = Reader()
    reader.parts = []
    reader.feed(re.sub(r"<script nonce.*?</script>", "", page, flags=re.S))
    return re.sub(r"\s+", " ", " ".join(reader.parts)).replace("\u00a0", " ")


def block(page, name):
    """The data that a script of the page reads."""
    return json.loads(re.search(rf'<script type="application/json" id="{name}">(.*?)</script>', page, re.S)[1])


def tags(page):
    """The names of all elements; scripts are empty."""
    return re.findall(r"<(\w+)", re.sub(r"<script[^>]*>.*?</script>", "<script>", page, flags=re.S))
