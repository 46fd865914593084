"""Links and paths in the pages of the repository lead to something that exists."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("jflow", "tests", "bench", "docs", "examples", "notebooks", "protos", "tools")

_LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(<?([^)\s>]+)>?(?: \"[^\"]*\")?\)")
_SOURCE = re.compile(r'(?:src|href)="([^"]+)"')
_FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(rf"(?:{'|'.join(FOLDERS)})/[\w./{{}},*-]*")
_CITED = re.compile(r"docs/[\w/-]+\.md(?:#[\w-]+)?")
_HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
_ID = re.compile(r'<a (?:id|name)="([^"]+)"')


def _tracked(*patterns: str) -> list[Path]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for name in done.stdout.splitlines() if (path := ROOT / name).is_file()]


PAGES = [path.relative_to(ROOT).as_posix() for path in _tracked("*.md")]


@cache
def _prose(page: Path) -> str:
    """A page without its blocks of code."""
    return _FENCE.sub("", page.read_text())


@cache
def _fragments(page: Path) -> frozenset[str]:
    """The fragments of a page: those that it writes, and those that follow from headings."""
    text = _prose(page)
    slugs: list[str] = []
    for heading in _HEADING.findall(text):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"<[^>]+>", "", heading))
        slug = re.sub(r"[^\w\- ]", "", shown.lower()).strip().replace(" ", "-")
        n_before = sum(re.sub(r"-\d+$", "", other) == slug for other in slugs)
        slugs.append(f"{slug}-{n_before}" if slug in slugs else slug)
    return frozenset(slugs) | frozenset(_ID.findall(text))


def _broken(page: Path, link: str) -> Iterator[str]:
    """What is wrong with a link of a page; nothing if it leads out of the repository."""
    if re.match(r"[a-z][a-z+.-]*:", link):
        return
    name, _, fragment = link.partition("#")
    target = (page.parent / name).resolve() if name else page
    if not target.exists():
        yield f"{link}: no such file"
    elif fragment and target.suffix == ".md" and fragment not in _fragments(target):
        yield f"{link}: no such anchor"


@pytest.mark.parametrize("page", PAGES)
def test_each_link_leads_to_a_file_and_a_fragment(page: str) -> None:
    path = ROOT / page
    text = _prose(path)
    links = [*_LINK.findall(_CODE.sub("", text)), *_SOURCE.findall(text)]
    assert not [problem for link in links for problem in _broken(path, link)]


@pytest.mark.parametrize("page", [page for page in PAGES if page != "CHANGELOG.md"])
def test_each_path_in_backticks_exists(page: str) -> None:
    missing = []
    for code in _CODE.findall(_prose(ROOT / page)):
        for name in filter(_PATH.fullmatch, code.split()):
            if not all(_found(each) for each in _alternatives(name)):
                missing.append(name)
    assert not missing


def _alternatives(name: str) -> list[str]:
    """`a/{b,c}.py` as two names."""
    match = re.search(r"\{([^}]*)\}", name)
    if not match:
        return [name]
    return [name.replace(match[0], each) for each in match[1].split(",")]


def _found(name: str) -> bool:
    return any(ROOT.glob(name.rstrip("/."))) if "*" in name else (ROOT / name.rstrip(".")).exists()


def test_pages_that_code_and_tests_cite_exist() -> None:
    problems = []
    for path in _tracked("*.py", "*.toml", "Makefile", "examples/*"):
        if path.suffix in (".py", ".toml", ".yaml", "") and path != Path(__file__):
            for cited in _CITED.findall(path.read_text(errors="replace")):
                where = path.relative_to(ROOT)
                problems += [f"{where}: {problem}" for problem in _broken(ROOT / "x", cited)]
    assert not problems
