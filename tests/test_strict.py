"""With CI=true a test that did not run fails the session, with and without xdist."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CONFTEST = """
import pytest
from tests.strict import *
from tests.strict import refuse_loose_xfails

@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    refuse_loose_xfails(items)
"""
HEAD = "import pytest\n\ndef test_good():\n    pass\n\n"
SKIPPED = HEAD + "def test_absent():\n    pytest.skip('no such thing here')\n"
SKIPPED_MODULE = "import pytest\npytest.skip('no such thing here', allow_module_level=True)\n"
LOOSE_CALL = HEAD + "def test_loose():\n    pytest.xfail('no such thing here')\n"
LOOSE_MARK = HEAD + "@pytest.mark.xfail(strict=False)\ndef test_loose():\n    assert False\n"
STRICT_MARK = HEAD + "@pytest.mark.xfail(strict=True)\ndef test_known():\n    assert False\n"


def run(folder: Path, source: str, ci: str, *arguments: str) -> tuple[int, str]:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_it.py").write_text(source)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"CI": ci, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments, str(folder)]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("arguments", [[], ["-n", "2"]], ids=["alone", "xdist"])
@pytest.mark.parametrize("source", [SKIPPED, SKIPPED_MODULE, LOOSE_CALL], ids=["test", "module", "xfail-call"])
def test_not_running_fails_under_ci(tmp_path, source, arguments):
    status, output = run(tmp_path, source, "true", *arguments)
    assert status == 1, output
    assert "counts as failed" in output
    assert "no such thing here" in output


@pytest.mark.parametrize("source", [SKIPPED, LOOSE_CALL], ids=["test", "xfail-call"])
def test_not_running_is_allowed_elsewhere(tmp_path, source):
    status, output = run(tmp_path, source, "false")
    assert status == 0, output


def test_a_strict_xfail_is_a_test_that_ran(tmp_path):
    status, output = run(tmp_path, STRICT_MARK, "true")
    assert status == 0, output


def test_a_loose_xfail_mark_is_refused(tmp_path):
    status, output = run(tmp_path, LOOSE_MARK, "false")
    assert status == pytest.ExitCode.USAGE_ERROR, output
    assert "xfail marks must be strict" in output
