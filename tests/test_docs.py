"""The documentation runs: every code block of README.md, CONTRIBUTING.md and docs/ is executed as it stands.

Blocks of a page run in order, in a folder where `data/` is a copy of golden/before, and for tiers `broker/` and
`bucket/` are what a broker kept and what it moved away, `secret-bucket/` the same for the key in `private.pem`, and
`private2.pem` is another key:

| block     | what happens                                                                                          |
|-----------|-------------------------------------------------------------------------------------------------------|
| `python`  | executed; all python blocks of a page share one namespace                                             |
| `console` | `$ kseg ...` is run, and what it prints compared with the lines below; `$ ./dev ...` must name a verb |
| `text`    | figures and tables: not run                                                                           |

Blocks that use `spark` run in tests marked `spark`, together with the other blocks of their page; docs/spark.md runs
only there.

In expected output `...` stands for anything: inside a line for the rest of it, alone on a line for any number of lines.
"""

from __future__ import annotations

import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from Crypto.PublicKey import RSA
from pyspark.sql import SparkSession

import kseg
from kseg.cli.main import main
from kseg.tables import cells
from tests.datasource.spark_session import SMALL_JVM, start_session
from tests.kafka.jars import Missing

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
SPARK_PAGE = ROOT / "docs" / "spark.md"
_SPARK = re.compile(r"\bspark\b")
_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[^\n`]*)\n(?P<code>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]\n]+\]\((?P<target>[^)\s]+)\)")
_DEV = re.compile(r"\./dev(?: (?P<verb>[a-z]+))?")
_HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    code: str

    @property
    def uses_spark(self) -> bool:
        return self.language == "python" and _SPARK.search(self.code) is not None

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(page, text.count("\n", 0, match.start("code")) + 1, match["language"].strip(), match["code"])
        for match in _FENCE.finditer(text)
    ]


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture
def folder(golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to run a page in, with a log directory to read and to write to."""
    shutil.copytree(golden / "before", tmp_path / "data")
    shutil.copytree(golden / "aiven" / "compressed" / "local", tmp_path / "broker")
    shutil.copytree(golden / "aiven" / "compressed" / "remote", tmp_path / "bucket")
    shutil.copytree(golden / "aiven" / "encrypted" / "remote", tmp_path / "secret-bucket")
    shutil.copy(golden / "aiven" / "encrypted" / "keys" / "private.pem", tmp_path)
    (tmp_path / "private2.pem").write_bytes(RSA.generate(2048).export_key(pkcs=8))
    for name in ("private.pem", "private2.pem"):
        (tmp_path / name).chmod(0o600)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("kseg.cli.progress.SECONDS_BETWEEN_LINES", float("inf"))  # a slow machine shows the same
    return tmp_path


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The process's session: the one that tests/datasource uses too, which ends with the run."""
    try:
        session = start_session(tmp_path_factory.mktemp("spark"))
    except Missing as missing:
        pytest.skip(str(missing))
    yield session
    session.stop()


@pytest.mark.parametrize("page", [page for page in PAGES if blocks_of(page) and page != SPARK_PAGE], ids=_name)
def test_code_blocks_run(page: Path, folder: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    _run_blocks([block for block in blocks_of(page) if not block.uses_spark], {}, capsysbinary)


@pytest.mark.spark
@pytest.mark.parametrize("page", [page for page in PAGES if any(b.uses_spark for b in blocks_of(page))], ids=_name)
def test_spark_blocks_run(
    page: Path, folder: Path, spark: SparkSession, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    _run_blocks(blocks_of(page), {"spark": spark}, capsysbinary)
    for table in spark.catalog.listTables():
        if table.isTemporary:
            spark.catalog.dropTempView(table.name)


@pytest.mark.spark
def test_example_finds_duplicates(
    folder: Path, spark: SparkSession, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    audit = runpy.run_path(str(ROOT / "examples" / "audit_duplicates.py"))["main"]
    assert audit(str(folder / "data")) == 0
    with kseg.create_log(folder / "restored" / "orders-0") as writer:
        for first in (0, 3, 4):  # the second batch ends with sequence 4, the third begins with it
            writer.append(pa.table({"value": [b"a", b"b"]}), producer_id=7, base_sequence=first)
    capsysbinary.readouterr()
    assert audit(str(folder / "restored")) == 1
    rows = [line for line in capsysbinary.readouterr().out.decode().splitlines() if "orders" in line]
    assert [row.replace(" ", "") for row in rows] == ["|orders|0|7|0|4|[3,4]|"]


def _run_blocks(blocks: list[Block], given: dict[str, object], capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    names: dict[str, object] = {"__name__": "docs", **given}
    for block in blocks:
        if block.language == "python":
            # line numbers of a traceback are those of the page
            exec(compile("\n" * (block.line - 1) + block.code, str(block.page), "exec"), names)
        elif block.language == "console":
            _run_console(block, capsysbinary)
        else:
            assert block.language == "text", f"{block}: a block is python, console or text, not {block.language!r}"


def _run_console(block: Block, capture: pytest.CaptureFixture[bytes]) -> None:
    for command, expected in _commands(block):
        words = shlex.split(command)
        if words[0] == "./dev":
            assert not expected, f"{block}: what ./dev prints is not checked, so it is not shown"
            continue
        assert words[0] == "kseg", f"{block}: {command!r} cannot be run here; only kseg and ./dev can"
        capture.readouterr()
        main(words[1:])
        printed = capture.readouterr()
        actual = (printed.out + printed.err).decode().rstrip("\n")
        assert _matches(expected, actual), f"{block}: $ {command}\nexpected:\n{expected}\nprinted:\n{actual}"


def _commands(block: Block) -> Iterator[tuple[str, str]]:
    """Commands with the output below them, where there is any."""
    parts = re.split(r"^\$ ", block.code, flags=re.MULTILINE)
    assert not parts[0].strip(), f"{block}: a console block starts with a command: '$ ...'"
    for part in parts[1:]:
        command, _, output = part.partition("\n")
        yield command.partition("  #")[0].strip(), output.rstrip("\n")


def _matches(expected: str, actual: str) -> bool:
    """Whether the output is as shown; a command without output below it may print anything."""
    if not expected:
        return True
    lines = []
    for line in expected.splitlines():
        if line.strip() == "...":
            lines.append(r"(?:[^\n]*\n)*?")
        else:
            pattern = r"[^\n]*".join(re.escape(part) for part in line.rstrip().split("..."))
            lines.append(pattern + r"[ ]*\n")
    return re.fullmatch("".join(lines), actual + "\n") is not None


def test_output_is_compared() -> None:
    assert _matches("one\n...\nfour", "one\ntwo\nthree\nfour")
    assert _matches("one t...", "one two")
    assert not _matches("one\nthree", "one\ntwo\nthree")
    assert not _matches("one", "one\ntwo")


def test_dev_verbs_exist() -> None:
    known = subprocess.run(["./dev", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    verbs = set(re.findall(r"^  ([a-z]+)", known, re.MULTILINE)) | {"help"}
    for page in PAGES:
        for match in _DEV.finditer(page.read_text(encoding="utf-8")):
            assert match["verb"] is None or match["verb"] in verbs, f"{_name(page)}: {match[0]}"


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_resolve(page: Path) -> None:
    for match in _LINK.finditer(_FENCE.sub("", page.read_text(encoding="utf-8"))):
        target, _, anchor = match["target"].partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        linked = (page.parent / target).resolve() if target else page
        assert linked.exists(), f"{_name(page)}: {match['target']}"
        assert not anchor or anchor in _anchors(linked), f"{_name(page)}: {match['target']}"


def _anchors(page: Path) -> set[str]:
    """Ids of a page's headings, as mkdocs makes them."""
    headings = _HEADING.findall(_FENCE.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", text).strip().lower()) for text in headings}


def test_sections_named_in_code_exist() -> None:
    """A comment such as `docs/file-format.md`, "Names" points at a page and a heading that are there."""
    pattern = re.compile(r"(docs/[\w/.-]+\.md)`?(?:,\s+\"([^\"\n]+)\")?")
    for source in sorted((ROOT / "kseg").rglob("*.py")):
        for path, heading in pattern.findall(source.read_text(encoding="utf-8")):
            page = ROOT / path
            assert page.exists(), f"{_name(source)}: {path}"
            headings = _HEADING.findall(page.read_text(encoding="utf-8"))
            assert not heading or heading in headings, f"{_name(source)}: {path} has no section {heading!r}"


def test_site_builds(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "index.html").exists()


def test_every_page_is_in_the_site() -> None:
    named = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in sorted((ROOT / "docs").rglob("*.md")):
        assert str(page.relative_to(ROOT / "docs")) in named


def test_demo_runs(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONIOENCODING": "utf-8", "JAVA_TOOL_OPTIONS": SMALL_JVM}
    command = [sys.executable, str(ROOT / "tools" / "demo.py")]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    for line in done.stdout.decode().splitlines():
        assert cells(line) <= 80, line
    assert list(tmp_path.iterdir()) == [], "what the demo wrote is gone"
