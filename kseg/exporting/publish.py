"""How the files of a run become visible, all of them or none, whenever the power fails.

| step                                                        | a crash behind it                                      |
|-------------------------------------------------------------|--------------------------------------------------------|
| 1. tasks write files below `_kseg/staging/<id>/`            | nothing is visible; the next run removes what is there |
| 2. the driver looks at each file again: size and last bytes | the same                                               |
| 3. the manifest is put into `_kseg/runs/`: the commit       | the next run goes on with step 4                       |
| 4. files move to where they belong                          | the same: those that still wait are moved              |
| 5. the staging directory is removed                         | everything is visible                                  |

Readers pass over names that begin with `_`. Between 3 and 5 a reader that lists directories may see a part of the run;
one that must not reads the names of files in the manifests.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Final

from kseg.errors import LogError, OptionError, StorageError
from kseg.exporting.manifest import STAGING_DIR, Manifest
from kseg.exporting.target import Target
from kseg.exporting.write import StagedFile

_MOVES_AT_A_TIME: Final = 16  # what counts is the store's answer, not the processor


def check_target(target: Target, address: str, last: Manifest | None) -> None:
    """Refuse a directory that holds other files than an export's.

    Raises:
        OptionError: There is something, and no manifest of an export.
    """
    if last is not None:
        return
    others = [entry.name for entry in target.list("") if not entry.name.startswith(("_", "."))]
    if others:
        raise OptionError(
            f"{address} holds other files, such as {others[0]!r}, and is no target of an export",
            hint="give a new or empty directory",
        )


def check_staged(target: Target, staging: str, staged: list[StagedFile]) -> None:
    """Look at every file again, from the driver: executors that do not share the target's disk are not trusted.

    Raises:
        StorageError: A file is not there, or is another one.
    """

    def check(one: StagedFile) -> None:
        name = f"{staging}/{one.file.name}"
        if target.check(name) != (one.file.size, one.digest):
            raise StorageError("the file is not as a task has written it", path=name, hint="export again")

    with ThreadPoolExecutor(_MOVES_AT_A_TIME) as pool:
        list(pool.map(check, staged))


def publish_run(target: Target, manifest: Manifest) -> int:
    """Move the files of a committed run to where they belong; return how many still waited.

    Safe to repeat: a crash, or another process that does the same, leaves files that are moved already.

    Raises:
        LogError: A file is neither in the staging directory nor where it belongs.
    """
    if not any(entry.name == manifest.id for entry in target.list(STAGING_DIR)):
        return 0
    there = {entry.name for entry in target.list(manifest.staging)}
    waiting = [file for file in manifest.files if file.name in there]
    directories = sorted({file.path.rpartition("/")[0] for file in manifest.files})
    for directory in directories:
        target.make_dir(directory)
    with ThreadPoolExecutor(_MOVES_AT_A_TIME) as pool:
        list(pool.map(lambda file: target.move(f"{manifest.staging}/{file.name}", file.path), waiting))
    for directory in directories:
        target.sync(directory)
        _check_moved(target, directory, manifest)
    target.remove(manifest.staging)
    return len(waiting)


def _check_moved(target: Target, directory: str, manifest: Manifest) -> None:
    found = {f"{directory}/{entry.name}" for entry in target.list(directory)}
    for file in manifest.files:
        if file.path.rpartition("/")[0] == directory and file.path not in found:
            raise LogError(
                f"run {manifest.run} was committed with this file, which is gone",
                path=file.path,
                hint="export to a new target",
            )


def remove_leftovers(target: Target) -> None:
    """Remove what runs that were not committed have left."""
    for entry in target.list(STAGING_DIR):
        target.remove(f"{STAGING_DIR}/{entry.name}")
