"""`kseg.export`: topics to Parquet, each run adds what is new."""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kseg.datasource.planning import read_options, warn_once
from kseg.errors import KsegError, OptionError
from kseg.exporting.manifest import ExportedRange, Manifest, read_last_manifest
from kseg.exporting.plan import ExportPlan, plan_export
from kseg.exporting.publish import check_staged, check_target, publish_run, remove_leftovers
from kseg.exporting.report import ExportedPartition, ExportReport
from kseg.exporting.settings import FILE_BYTES, ROW_GROUP_BYTES, ExportSettings, make_settings
from kseg.exporting.target import Target, open_target, target_address
from kseg.exporting.write import NONCE_FILE, ExportTask, StagedFile, export_task
from kseg.log.damage import Damage
from kseg.log.names import META_PROPERTIES_FILE
from kseg.options import Paths, SourceOptions, option_map, parse_source_options
from kseg.progress import SILENT, Progress
from kseg.runner import run_tasks, spark_failures
from kseg.storage import LocalStore, open_store
from kseg.types import TopicPartition


@spark_failures()
def export(
    spark: Any,
    path: Paths,
    target: str | os.PathLike[str],
    *,
    topics: str | Sequence[str] | None = None,
    by: str | None = "day",
    columns: str | Sequence[str] | None = None,
    target_file_bytes: int = FILE_BYTES,
    row_group_bytes: int = ROW_GROUP_BYTES,
    compression: str = "snappy",
    compression_level: int | None = None,
    dry_run: bool = False,
    progress: Progress = SILENT,
    **options: Any,
) -> ExportReport:
    """Write records as Parquet files, `topic=orders/day=2026-01-31/part-....parquet`; a second run adds what is new.

    A run is published as a whole or not at all (docs/export.md, "All or nothing"). The tasks write the files, so no
    record passes through Spark's JVM or the driver.

    Args:
        spark: A Spark session; None runs the same tasks in threads of this process.
        path: A log directory, a topic or partition directory, or several; paths or URIs.
        target: A directory that all executors see, or a URI: new, empty, or of an earlier export.
        topics: Names of topics; by default all that are there, internal ones excepted.
        by: Directories by "day" or "hour" of the records' timestamps, in UTC; None: by topic alone.
        columns: Columns of the files; by default those of the Kafka source. The topic is in the directories' names.
        target_file_bytes: About how large files become; a task reads as many bytes of log, unless `maxBytesPerTask`
            says otherwise.
        row_group_bytes: About how many bytes of records, before compression, go into a row group.
        compression: snappy, zstd, lz4, gzip, brotli or none.
        dry_run: Only tell what would be exported.
        options: Options of the source by their names with underscores for dots, such as `startingOffsets="earliest"`.

    Raises:
        OptionError: An option is wrong, or the target is not an export's or was begun with other settings.
        DataLossError: Offsets that come next are gone, and `failOnDataLoss` is set.
        LockedError: Another export writes to the target.
        JobError: Spark failed.
    """
    parsed = _parse(option_map(path, topics, columns, options))
    settings = make_settings(
        parsed,
        by=by,
        file_bytes=target_file_bytes,
        row_group_bytes=row_group_bytes,
        compression=compression,
        compression_level=compression_level,
    )
    address = target_address(target)
    _check_apart(address, parsed)
    place = open_target(address)
    began = time.monotonic()
    last = _read_state(place, address, settings)
    plan = plan_export(parsed, settings, last)  # what is wrong with the source is told before the target is made
    if dry_run:
        return _report(address, plan, None, 0, began, dry_run=True)
    with place.exclusive():
        seen, last = last, _read_state(place, address, settings)
        completed = 0 if last is None else publish_run(place, last)
        remove_leftovers(place)
        if last != seen:
            plan = plan_export(parsed, settings, last)
        manifest = None
        if plan.ranges:
            manifest = _Run(place, address, settings, last).apply(plan, parsed, spark, progress)
    return _report(address, plan, manifest, completed, began, dry_run=False)


def _parse(given: dict[str, str]) -> SourceOptions:
    parsed = parse_source_options(given)
    if parsed.view != "records":
        raise OptionError(f"option view is {parsed.view!r}; only records are exported")
    warn_once(parsed)
    return parsed


def _check_apart(address: str, options: SourceOptions) -> None:
    """Keep the target out of the logs: a broker does not start with a directory among them that is no partition."""
    store, place = open_store(address)
    if not isinstance(store, LocalStore):
        return
    place = os.path.realpath(place)
    inside = [path for path in (place, *map(str, Path(place).parents)) if Path(path, META_PROPERTIES_FILE).exists()]
    for path in options.paths:
        source, directory = open_store(path)
        directory = os.path.realpath(directory)
        if isinstance(source, LocalStore) and os.path.commonpath([place, directory]) == directory:
            inside.append(path)
    if inside:
        raise OptionError(
            f"target {address} is inside {inside[0]}, which holds logs", hint="give a directory elsewhere"
        )


def _read_state(target: Target, address: str, settings: ExportSettings) -> Manifest | None:
    last = read_last_manifest(target)
    check_target(target, address, last)
    if last is not None:
        last.check_settings(settings)
    return last


@dataclass(slots=True)
class _Staged:
    """What the tasks of a run have done, together."""

    files: list[StagedFile] = field(default_factory=list)
    rows: Counter[TopicPartition] = field(default_factory=Counter)
    damages: list[Damage] = field(default_factory=list)


class _Run:
    """One run that writes."""

    def __init__(self, target: Target, address: str, settings: ExportSettings, last: Manifest | None) -> None:
        self._target = target
        self._address = address
        self._settings = settings
        self._number = 1 if last is None else last.run + 1
        self._last = last
        self._id = uuid.uuid4().hex

    def apply(self, plan: ExportPlan, options: SourceOptions, spark: Any, progress: Progress) -> Manifest:
        """Stage, commit, publish; where anything fails before the commit, nothing is left."""
        manifest = self._manifest(plan, _Staged())
        try:
            staged = self._stage(plan, options, spark, progress, manifest.staging)
            check_staged(self._target, manifest.staging, staged.files)
            manifest = self._manifest(plan, staged)
            self._target.make_dir(manifest.name.rpartition("/")[0])
            self._target.put(manifest.name, manifest.to_json())
        except BaseException:
            if not self._is_committed(manifest):
                with contextlib.suppress(KsegError):
                    self._target.remove(manifest.staging)
            raise
        publish_run(self._target, manifest)
        return manifest

    def _is_committed(self, manifest: Manifest) -> bool:
        """Whether the manifest is there, although the call that put it failed."""
        last = read_last_manifest(self._target)
        return last is not None and last.id == manifest.id

    def _stage(self, plan: ExportPlan, options: SourceOptions, spark: Any, progress: Progress, staging: str) -> _Staged:
        nonce = uuid.uuid4().hex
        self._target.make_dir(staging)
        self._target.put(f"{staging}/{NONCE_FILE}", nonce.encode())
        tasks = [
            ExportTask(
                number=number,
                splits=splits,
                target=self._address,
                staging=staging,
                nonce=nonce,
                run=self._number,
                settings=self._settings,
                how=read_options(options),
            )
            for number, splits in enumerate(plan.tasks)
        ]
        weights = [sum(split.size for split in task.splits) for task in tasks]
        progress.begin("export", sum(weights))
        try:
            results = run_tasks(export_task, tasks, spark=spark, progress=progress, weights=weights)
        finally:
            progress.end()
        staged = _Staged()
        for result in results:
            if isinstance(result, KsegError):
                raise result
            staged.files += result.files
            staged.rows.update(result.rows)
            staged.damages += result.damages
        return staged

    def _manifest(self, plan: ExportPlan, staged: _Staged) -> Manifest:
        return Manifest(
            run=self._number,
            id=self._id,
            by=self._settings.by,
            columns=self._settings.columns,
            isolation=self._settings.isolation,
            ranges=tuple(
                ExportedRange(tp.topic, tp.partition, wanted.start, wanted.end, staged.rows[tp])
                for wanted in plan.ranges
                for tp in (wanted.topic_partition,)
            ),
            files=tuple(one.file for one in staged.files),
            places={**({} if self._last is None else self._last.places), **plan.places},
            damages=tuple(staged.damages),
        )


def _report(
    address: str, plan: ExportPlan, manifest: Manifest | None, completed: int, began: float, *, dry_run: bool
) -> ExportReport:
    rows = {} if manifest is None else {TopicPartition(r.topic, r.partition): r.rows for r in manifest.ranges}
    files = () if manifest is None else manifest.files
    damages = () if manifest is None else manifest.damages
    partitions = [
        ExportedPartition(tp.topic, tp.partition, wanted.start, wanted.end, plan.bytes_of(tp), rows.get(tp))
        for wanted in plan.ranges
        for tp in (wanted.topic_partition,)
    ]
    return ExportReport(
        target=address,
        dry_run=dry_run,
        run=None if manifest is None else manifest.run,
        manifest=None if manifest is None else manifest.name,
        partitions=tuple(partitions),
        rows=sum(rows.values()),
        bytes=plan.bytes,
        files=len(files),
        file_bytes=sum(file.size for file in files),
        completed=completed,
        losses=tuple(str(loss) for loss in plan.losses),
        lost_offsets=sum(loss.end - loss.start for loss in plan.losses),
        damages=damages,
        damaged_bytes=sum(damage.size for damage in damages),
        damaged_offsets=sum(damage.end - damage.start for damage in damages),
        seconds=time.monotonic() - began,
    )
