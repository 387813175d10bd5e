"""Golden tiers, and their key."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

TREES = ("tiered", "aiven/plain", "aiven/compressed", "aiven/encrypted")


@pytest.fixture(scope="session")
def golden_keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The private key of the encrypted golden tier, in a file that only its owner can read."""
    source = Path(__file__).parent.parent / "golden/aiven/encrypted/keys/private.pem"
    target = tmp_path_factory.mktemp("keys") / "private.pem"
    shutil.copy(source, target)
    target.chmod(0o600)
    return {"key1": target}
