"""The record of a run, `_kseg/runs/00000001.json`: what it added, and where each partition goes on.

The manifest of the highest number is the state of the target; it is put there once, whole, and never changed. A run is
committed when its manifest is there.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final

from kseg.errors import LogError, OptionError
from kseg.exporting.settings import ExportSettings
from kseg.exporting.target import SIDE_DIR, Target
from kseg.log.damage import Damage
from kseg.types import TopicPartition

FORMAT: Final = "kseg-export"
VERSION: Final = 1
RUNS_DIR: Final = f"{SIDE_DIR}/runs"
STAGING_DIR: Final = f"{SIDE_DIR}/staging"
_RUN_FILE: Final = re.compile(r"([0-9]{8})\.json")
_ID: Final = re.compile(r"[0-9a-f]{32}")
_DATA_FILE: Final = re.compile(r"(?:topic|day|hour)=[^/]+(?:/(?:day|hour)=[^/]+)*/(part-[0-9a-z.-]+\.parquet)")


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """A file of a run: its name among the staged ones, and where it stands when the run is published."""

    name: str
    path: str
    size: int
    rows: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where a partition goes on; the topic's id tells whether it is still the same topic."""

    offset: int
    topic_id: str | None


@dataclass(frozen=True, slots=True)
class ExportedRange:
    """Offsets `[start, end)` of a partition that a run has exported, and how many records these were."""

    topic: str
    partition: int
    start: int
    end: int
    rows: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """One run; `places` are those of all partitions that this and earlier runs have exported, `damages` are its own."""

    run: int
    id: str
    by: str | None
    columns: tuple[str, ...]
    isolation: str
    ranges: tuple[ExportedRange, ...]
    files: tuple[ExportedFile, ...]
    places: dict[TopicPartition, Place]
    damages: tuple[Damage, ...] = ()

    @property
    def name(self) -> str:
        """The manifest's own file."""
        return f"{RUNS_DIR}/{self.run:08d}.json"

    @property
    def staging(self) -> str:
        """The directory in which the run's files wait."""
        return f"{STAGING_DIR}/{self.id}"

    def to_json(self) -> bytes:
        """Undo `parse_manifest`."""
        places: dict[str, dict[str, Any]] = {}
        for tp in sorted(self.places):
            place = self.places[tp]
            places.setdefault(tp.topic, {})[str(tp.partition)] = {"offset": place.offset, "topicId": place.topic_id}
        content = {
            "format": FORMAT,
            "version": VERSION,
            "run": self.run,
            "id": self.id,
            "by": self.by,
            "columns": self.columns,
            "isolation": self.isolation,
            "ranges": [[r.topic, r.partition, r.start, r.end, r.rows] for r in self.ranges],
            "files": [{"path": f.path, "bytes": f.size, "rows": f.rows} for f in self.files],
            "next": places,
            "damages": [damage.to_dict() for damage in self.damages],
        }
        return json.dumps(content, indent=1).encode()

    def check_settings(self, settings: ExportSettings) -> None:
        """Refuse a run whose files would not fit those that are there.

        Raises:
            OptionError: Directories, columns or isolation differ.
        """
        for name, wanted, there in (
            ("by", settings.by, self.by),
            ("columns", list(settings.columns), list(self.columns)),
            ("isolation", settings.isolation, self.isolation),
        ):
            if wanted != there:
                raise OptionError(
                    f"{name} is {wanted!r}, but the target was begun with {there!r}",
                    hint="give the same, or another target",
                )


def read_last_manifest(target: Target) -> Manifest | None:
    """The state of the target; None where no run was committed yet.

    Raises:
        LogError: The manifest is not what an export of this version writes.
    """
    numbers = [int(match[1]) for entry in target.list(RUNS_DIR) if (match := _RUN_FILE.fullmatch(entry.name))]
    if not numbers:
        return None
    name = f"{RUNS_DIR}/{max(numbers):08d}.json"
    try:
        return parse_manifest(target.read(name), max(numbers))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise LogError(
            f"this is no manifest of an export ({type(error).__name__}: {error})", path=name, hint="use another target"
        ) from None


def parse_manifest(data: bytes, run: int) -> Manifest:
    """Parse and check a manifest; whatever is wrong is a ValueError, KeyError or TypeError."""
    content = json.loads(data)
    if content["format"] != FORMAT or content["version"] != VERSION or content["run"] != run:
        raise ValueError(f"format, version or run is not {FORMAT}, {VERSION}, {run}")
    if not _ID.fullmatch(content["id"]):
        raise ValueError("id")
    return Manifest(
        run=run,
        id=content["id"],
        by=content["by"],
        columns=tuple(content["columns"]),
        isolation=content["isolation"],
        ranges=tuple(ExportedRange(str(topic), *map(_number, rest)) for topic, *rest in content["ranges"]),
        files=tuple(_parse_file(item) for item in content["files"]),
        places={
            TopicPartition(topic, int(partition)): Place(_number(place["offset"]), place["topicId"])
            for topic, partitions in content["next"].items()
            for partition, place in partitions.items()
        },
        damages=tuple(Damage(**item) for item in content.get("damages", ())),
    )


def _parse_file(item: dict[str, Any]) -> ExportedFile:
    match = _DATA_FILE.fullmatch(item["path"])
    if match is None:  # what is moved there must stay inside the target
        raise ValueError(f"path {item['path']!r}")
    return ExportedFile(match[1], item["path"], _number(item["bytes"]), _number(item["rows"]))


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is no number")
    return value
