"""The effective values of apt's options, in the syntax of apt.conf(5)."""

from __future__ import annotations

import re

from ktfleet.host.probe.reader import Reader
from ktfleet.host.probe.values import ReadError, seen

TYPE_CHECKING = False
if TYPE_CHECKING:  # Only annotations need it, and importing typing is a tenth of the probe's time.
    from collections.abc import Iterable

APT = "/etc/apt"
APT_FILE = re.compile("[A-Za-z0-9_:-]+|[A-Za-z0-9_:-][A-Za-z0-9_:.-]*[.]conf")
APT_WORD = re.compile(r'((?:"[^"]*"|\[[^\]]*\]|[^\s"\[])+)(?:\s+|$)')


class AptOptions:
    """apt's tree of options: names in any case, lists as children without a name, in order."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, ...], str] = {}
        self.items = 0

    def path(self, name: str) -> tuple[str, ...]:
        """The parts of A::B, found as apt finds them: after a ::, the next one is looked for one character on."""
        parts = []
        start = at = 0
        while len(name) - at >= 2:
            if name.startswith("::", at):
                parts.append(name[start:at].lower())
                start = at = at + 2
            at += 1
        return (*parts, name[start:].lower())

    def set(self, name: str, value: str) -> None:
        """Set one option; an empty part is a new item of a list."""
        place: tuple[str, ...] = ()
        for part in self.path(name):
            self.items += 1
            place = (*place, part or "\0%d" % self.items)
            self.values.setdefault(place, "")
        self.values[place] = value

    def clear(self, name: str) -> None:
        """Empty an option and forget everything below it."""
        place = self.path(name)
        kept = {path: value for path, value in self.values.items() if path == place or path[: len(place)] != place}
        self.values = {path: "" if path == place else value for path, value in kept.items()}

    def get(self, name: str) -> str:
        """The value of an option, followed by those of its list."""
        place = self.path(name)
        below = [value for path, value in self.values.items() if path[:-1] == place]
        return " ".join(filter(None, [self.values.get(place, ""), *below]))


def parse_apt_conf(text: str, options: AptOptions) -> None:
    """Add what one file of apt.conf(5) sets, as ReadConfigFile of apt does; what comes before an error counts."""
    scopes: list[str] = []
    parent = statement = ""
    for number, piece, end in _apt_pieces(text):
        statement = " ".join(filter(None, (statement, piece)))
        if not statement and end == "{":
            raise ReadError("line %d: block without a name" % number)
        if statement and end:
            tag, word = _apt_words(statement, end, number)
            if end == "{":
                scopes.append(parent)
                parent, tag = _apt_join(parent, tag), ""
            _apt_set(options, parent, tag, word, end, number)
            statement = ""
        if end == "}":
            parent = scopes.pop() if scopes else ""
    if statement:
        raise ReadError("junk at the end: " + seen(statement))


def _apt_pieces(text: str) -> Iterable[tuple[int, str, str]]:
    """Line number, text, and the { } or ; that ends it ("" at the end of a line), without comments."""
    comment = False
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.replace("\t", " " * 8).strip()
        if comment:
            _, closed, line = line.partition("*/")
            comment = not closed
        # A quote that stays open hides the rest of its line, here as everywhere below.
        for match in re.finditer(r'"[^"]*"?|//|#(?!clear|include|x-apt-configure-index)', line):
            if match[0][0] != '"':
                line = line[: match.start()]
                break
        kept = []
        for match in re.finditer(r'"[^"]*"?|/\*.*?\*/|/\*.*|[^"/]+|.', line):
            if match[0].startswith("/*"):
                comment = not match[0].endswith("*/") or len(match[0]) < 4
            else:
                kept.append(match[0])
        for piece, end in re.findall(r'((?:[^{};"]|"[^"]*"?)*)([{};]?)', "".join(kept)):
            yield number, piece.strip(), end


def _apt_words(statement: str, end: str, number: int) -> tuple[str, str | None]:
    """Name and value. One word alone is a value, or the name of a block."""
    first = APT_WORD.match(statement)
    if not first:
        raise ReadError("line %d: malformed name" % number)
    tag, rest = _apt_plain(first[1]), statement[first.end() :]
    if not rest:
        return (tag, None) if end == "{" else ("", tag)
    if re.fullmatch(r'(?:"[^"]*"|\s)+', rest):
        return tag, re.sub(r'"([^"]*)"|\s+', lambda match: " " if match[1] is None else match[1], rest)
    second = APT_WORD.fullmatch(rest)
    if not second:
        raise ReadError("line %d: junk after the value" % number)
    return tag, _apt_plain(second[1])


def _apt_plain(word: str) -> str:
    return re.sub('"|%([0-9a-fA-F]{2})', lambda match: chr(int(match[1], 16)) if match[1] else "", word)


def _apt_set(options: AptOptions, parent: str, tag: str, word: str | None, end: str, number: int) -> None:
    if tag.startswith("#"):
        if parent or tag not in ("#clear", "#x-apt-configure-index"):
            raise ReadError("line %d: directive that is not followed: %s" % (number, seen(tag)))
        if tag == "#clear" and word:
            options.clear(word)
    elif word == "#clear" and not tag:
        raise ReadError("line %d: #clear without an option" % number)
    elif word is not None:
        # In a block, a value without a name is one more item of its list.
        options.set(parent if end == "{" else _apt_join(parent, tag), word)


def _apt_join(parent: str, tag: str) -> str:
    return parent + "::" + tag if parent else tag


def read_apt(reader: Reader, names: Iterable[str]) -> dict[str, str]:
    """The asked options of apt that are set. For apt an empty value is none."""
    asked = list(names)
    options = AptOptions()
    parts = [APT + "/apt.conf.d/" + name for name in reader.names(APT + "/apt.conf.d") if APT_FILE.fullmatch(name)]
    for path in (*parts, APT + "/apt.conf") if asked else ():
        reader.optional(path, lambda text: parse_apt_conf(text, options))
    return {name: options.get(name) for name in asked if options.get(name)}
