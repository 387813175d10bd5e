"""Golden tiers, and their key; tiers of a larger log."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from Crypto.PublicKey import RSA

from tests.tiering.cluster import make_cluster, run

TREES = ("tiered", "aiven/plain", "aiven/compressed", "aiven/encrypted")


@pytest.fixture(scope="session")
def golden_keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The private key of the encrypted golden tier, in a file that only its owner can read."""
    source = Path(__file__).parent.parent / "golden/aiven/encrypted/keys/private.pem"
    target = tmp_path_factory.mktemp("keys") / "private.pem"
    shutil.copy(source, target)
    target.chmod(0o600)
    return {"key1": target}


@pytest.fixture(scope="session")
def rewrap_keys(golden_keys: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The golden tier's private key, and a new one, by their ids."""
    new = tmp_path_factory.mktemp("new") / "private2.pem"
    new.write_bytes(RSA.generate(2048).export_key(pkcs=8))
    new.chmod(0o600)
    return {**golden_keys, "new": new}


@pytest.fixture(scope="session")
def indexed_tiers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tiers `plain` and `chunked` of one log, whose segments (at 0, 4000, 8000) have many index entries."""
    folder = tmp_path_factory.mktemp("indexed")
    data = make_cluster(folder / "data", per_segment=4000, batch_records=10)
    for layout in ("plain", "chunked"):
        run(data, folder / layout, layout=layout, archive=True)
    return folder
