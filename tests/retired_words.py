"""Finds words that the project no longer uses; docs/glossary.md has the words to use.

`python -m tests.retired_words [ROOM...]` lists where they are and what to say; `--counts` how many
of each word there are; `--table` the table of tests/test_structure.py as it could be now.

Names are looked at where they are defined: what is foreign keeps its names. In functions that are
tests the name is a sentence, so it is prose.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
CODE = ("jflow", "tests", "bench", "examples", "tools")
PAGES = ("*.md", "docs/**/*.md", "bench/*.md", "bench/*.json", "notebooks/*.ipynb")

_WORDS = {
    "strand strands": "blocking driver",
    "loan loans lent lend": "leased view",
    "holder holders": "cell, ResourceManager",
    "keeper keepers": "owner",
    "carrier carriers": "physical",
    "chance": "rng",
    "asking": "request scope",
    "asked": "requested",
    "teacher teachers taught": "size source",
    "home homes": "handle op",
    "anchor anchors": "owner op",
    "withdraw withdraws withdrawn": "cancel",
    "undo undone": "rollback",
    "pace": "last latency",
    "looking": "query",
    "attempting": "single attempt",
    "fleet": "cluster view",
    "surroundings": "worker context",
    "survey": "build diagram",
    "wording": "labels",
    "curve": "bezier",
    "welcome": "server info",
    "greet greets greeting": "handshake",
    "dial dials redial": "connect",
    "settle settles settled settling": "resolve, complete",
    "turn turns": "critical section",
    "who whom whoever nobody somebody everybody anybody he him his": "it, the component",
}
WORDS = {word: say for words, say in _WORDS.items() for word in words.split()}
"""Whole words of snake_case and CamelCase names, and what to say."""

_NAMES = {
    "Store": "Containers",
    "Pool": "shuffle storage",
    "Line": "WaitQueue, FifoStorage",
    "Heap": "priority storage",
    "Total DenseTotal SparseTotal": "gradient sum",
    "Part Parts StartParts StopParts run_part run_parts register_parts": "plan",
    "parts_finished parts_failed Share share shares run_share run_shares": "plan",
    "Place VariablePlace": "key, row, ByteRange",
    "place_of place_in user_place": "source_location",
    "Calls": "dispatcher",
    "Background": "task set",
    "Roots": "allowed directories",
    "Position PositionSpec SavePosition POSITION_OPERATIONS": "iterator state",
    "LiveKeeper LiveSteps live_steps is_live": "eager",
    "BoundCall BoundOperation BoundPlan BoundRun BoundCallback bound_callback": "linked",
    "BoundStep": "Instruction",
    "InlineStep": "Executable",
    "waits may_wait": "is_blocking",
    "in_a_row": "sequential",
    "as_they_come": "dataflow order",
}
NAMES = {name: say for names, say in _NAMES.items() for name in names.split()}
"""Whole names, with or without a leading underscore."""

FILES = {
    "jflow/task/execution/bound.py": "linking",
    "jflow/client/functions/closures.py": "capture check",
    "jflow/compiler/graph/flatten.py": "hoisting of state",
    "jflow/compiler/graph/live.py": "eager",
    "jflow/compiler/graph/order.py": "effect order",
    "jflow/client/ops/live_steps.py": "eager",
    "jflow/state/records/roots.py": "allowed directories",
    "jflow/state/resources/line.py": "wait queue",
    "jflow/state/resources/position.py": "iterator state",
    "jflow/state/resources/store.py": "containers",
    "jflow/state/resources/total.py": "gradient sum",
    "jflow/net/wire/background.py": "task set",
    "jflow/net/wire/calls.py": "dispatcher",
    "jflow/task/worker/part.py": "plan",
}

PROSE = re.compile(
    r"\b(strands?|lent|loans?|loaned|keepers?|teachers?|who|whom|whoever|no one|nobody|somebody"
    r"|someone|everybody|everyone|anybody|anyone|he|him|his|himself)\b",
    re.IGNORECASE,
)
PEOPLE = (
    "He et al.",  # an author
    "who wrote it",  # a program
    "Who owns what",  # in the code
    "Who may call",  # users, whom the security page is about
    "who may call them",
    "Who can reach it",
    "everyone with access to that network",
    "everyone on that network",
    '"who"',  # a column of the people in a table
)
"""Phrases about people, who may be "who"; code is "it"."""
METHODS = frozenset({"he_normal", "he_uniform"})
"""Names of methods that are those of people."""
_PIECES = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_NAME = re.compile(r"[^\W\d]\w*")
_SENTENCE = re.compile(r"def (test_\w*)")


@dataclass(frozen=True)
class Found:
    """A retired word.

    Attributes:
      room: "jflow/compiler/graph", "tests/client/queues", "pages" and the like.
      kind: "names" or "prose".
      word: as it is retired.
      where: the file and line.
      text: the name or line that has it.
      say: what to say instead, if that is one word.
    """

    room: str
    kind: str
    word: str
    where: str
    text: str
    say: str = ""


def find() -> list[Found]:
    """All retired words in code, pages and protocol buffers."""
    found: list[Found] = []
    for folder in CODE:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "_pb2" not in path.name and path != Path(__file__):
                found += _in_code(path)
    for pattern in PAGES:
        for path in sorted(ROOT.glob(pattern)):
            found += _in_text("pages", path, 1, path.read_text())
    for path in sorted((ROOT / "protos").rglob("*.proto")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            code, _, comment = line.partition("//")
            found += _in_text("protos", path, number, comment)
            for name in _NAME.findall(code):
                found += _in_name("protos", path, number, name)
    return found


def _in_code(path: Path) -> Iterator[Found]:
    relative = path.relative_to(ROOT)
    top = relative.parts[0]
    room = "/".join(relative.parts[:2]).removesuffix(".py") if top in ("jflow", "tests") else top
    source = path.read_text()
    if relative.as_posix() in FILES:
        say = FILES[relative.as_posix()]
        yield Found(room, "names", path.name, f"{relative}:1", path.name, say)
    yield from _in_name(room, path, 1, path.stem.removeprefix("test_"))
    # Parsing takes most of the time, and most files have none of the words.
    if any(map(_retired_in, set(_NAME.findall(source)))):
        for name, line in _defined(ast.parse(source)):
            if not name.startswith("test_"):
                yield from _in_name(room, path, line, name)
    for match in _SENTENCE.finditer(source):
        line = source.count("\n", 0, match.start()) + 1
        yield from _in_text(room, path, line, match[1].replace("_", " "))
    if PROSE.search(source):
        yield from _in_prose(room, path, source)


def _defined(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """The names that a file gives to something, with their lines."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name, node.lineno
            case ast.arg():
                yield node.arg, node.lineno
            case ast.Name(ctx=ast.Store()):
                yield node.id, node.lineno
            case ast.Attribute(ctx=ast.Store()):
                yield node.attr, node.lineno
            case ast.alias(asname=str(asname)) if asname != node.name:
                yield asname, node.lineno
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                yield name, node.lineno


def _in_prose(room: str, path: Path, source: str) -> Iterator[Found]:
    """Those in comments and strings: docstrings, and messages that a user reads."""
    in_strings = (tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT or token.type in in_strings:
            yield from _in_text(room, path, token.start[0], token.string)


def _in_text(room: str, path: Path, first: int, text: str) -> Iterator[Found]:
    for number, line in enumerate(text.splitlines(), first):
        for match in PROSE.finditer(_of_code(line)):
            where = f"{path.relative_to(ROOT)}:{number}"
            yield Found(room, "prose", match[0].lower(), where, line.strip())


def _of_code(line: str) -> str:
    """A line without what it says of people."""
    for phrase in PEOPLE:
        line = line.replace(phrase, "")
    return line


def _in_name(room: str, path: Path, line: int, name: str) -> Iterator[Found]:
    for word, say in _retired_in(name):
        yield Found(room, "names", word, f"{path.relative_to(ROOT)}:{line}", name, say)


@cache
def _retired_in(name: str) -> tuple[tuple[str, str], ...]:
    whole = name.lstrip("_")
    if whole in METHODS:
        return ()
    if whole in NAMES:
        return ((whole, NAMES[whole]),)
    words = map(str.lower, _PIECES.findall(name))
    return tuple((word, WORDS[word]) for word in words if word in WORDS)


def main(arguments: list[str]) -> None:
    """Prints what the head of this file says."""
    found = find()
    if "--counts" in arguments:
        for (kind, word), n in sorted(Counter((f.kind, f.word) for f in found).items()):
            rooms = Counter(f.room for f in found if (f.kind, f.word) == (kind, word))
            print(f"{kind} {word} {n}:", ", ".join(f"{r} {k}" for r, k in rooms.most_common()))
    else:
        for each in found:
            if not arguments or each.room in arguments:
                advice = f" -> {each.say}" if each.say else ""
                print(f"{each.where}: {each.word}{advice}: {each.text}")


if __name__ == "__main__":
    main(sys.argv[1:])
