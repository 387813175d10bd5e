"""A disk that forgets what was not fsynced: the states in which a power cut may leave a folder.

A job runs once, and its operations are recorded. Then, for each moment between two operations, folders are built as a
file system might show them after the power came back there. Files' bytes and directories' names are kept apart: bytes
are safe once the file was fsynced, names once the directory was. Of what was not fsynced there may be

| state     | bytes of a file                                                  | names in a directory                  |
|-----------|------------------------------------------------------------------|---------------------------------------|
| `all`     | everything                                                       | everything                            |
| `synced`  | nothing                                                          | nothing                               |
| `ordered` | the writes up to some moment, the last of them cut anywhere      | the changes up to some moment         |
| `any`     | any of the writes; zeros where one is missing before another     | any of the changes                    |

A rename is one change, also from one directory to another. A file with several names has the same bytes under each, and
is one file again on the real disk. `tests/faults/disk.py` has an example of a job and a check.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.disk import End, Job, forget_process, in_front_of_durable, noted, path_of
from tests.scale import FACTOR

STATES = ("all", "synced", "ordered", "any")


@dataclass(eq=False)
class File:
    """A file's bytes: those that are safe, and the changes since, each a (position, data) or a size to cut to."""

    synced: bytes = b""
    pending: list[tuple[int, bytes] | int] = field(default_factory=list)

    def content(self, changes: list[tuple[int, bytes] | int] | None = None) -> bytes:
        """The bytes with these changes, or with all."""
        data = bytearray(self.synced)
        for change in self.pending if changes is None else changes:
            if isinstance(change, int):
                data = data[:change].ljust(change, b"\0")
            else:
                position, piece = change
                data = data.ljust(position, b"\0")
                data[position : position + len(piece)] = piece
        return bytes(data)

    def sync(self) -> None:
        """All bytes are safe."""
        self.synced, self.pending = self.content(), []


@dataclass(eq=False)
class NameChange:
    """A change of names: each a directory, a name, and what it stands for then (None: nothing)."""

    parts: tuple[tuple[Folder, str, Node | None], ...]

    def apply(self, folder: Folder, names: dict[str, Node]) -> None:
        """Do this folder's share."""
        for changed, name, node in self.parts:
            if changed is folder and node is None:
                names.pop(name, None)
            elif changed is folder and node is not None:
                names[name] = node


@dataclass(eq=False)
class Folder:
    """A directory's names: those that are safe, and the changes since."""

    synced: dict[str, Node] = field(default_factory=dict)
    pending: list[NameChange] = field(default_factory=list)

    def names(self, changes: list[NameChange] | None = None) -> dict[str, Node]:
        """The names with these changes, or with all."""
        names = dict(self.synced)
        for change in self.pending if changes is None else changes:
            change.apply(self, names)
        return names

    def sync(self) -> None:
        """All names are safe; of a move between two directories, both ends."""
        done, self.pending = self.pending, []
        for change in done:
            change.apply(self, self.synced)
            for other in {folder for folder, _, _ in change.parts if folder is not self}:
                if change in other.pending:
                    other.pending.remove(change)
                    change.apply(other, other.synced)


Node = File | Folder


class Content(bytes):
    """What a state has of one file: the same object under each of the file's names."""


class Recorder:
    """Does every operation, and writes down what it was."""

    def __init__(self) -> None:
        self.operations: list[tuple[str, tuple[Any, ...], dict[str, Any], Any]] = []
        self._guard = threading.RLock()

    def perform(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Do an operation and record it; one that fails changes nothing."""
        with self._guard:
            kept = tuple(bytes(arg) if not isinstance(arg, int | str | Path) else arg for arg in args)
            if name == "unlink" and not Path(args[0]).exists():
                return function(*args, **kwargs)
            result = function(*args, **kwargs)
            self.operations.append((name, kept, kwargs, result))
            return result

    def promise(self, value: Any) -> None:
        """What holds from here on."""
        self.operations.append(("promise", (value,), {}, None))


class Replay:
    """The model of the disk, moved on by recorded operations."""

    def __init__(self, root: Path, start: Path) -> None:
        self._where = os.fspath(root)
        self.root = _read_tree(start)
        self._open: dict[int, tuple[File, list[int] | None]] = {}  # the file, and where the next write goes (None: end)

    def take(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Do an operation on the model."""
        getattr(self, f"_{name}")(*args, result=result, **kwargs)

    def _find(self, path: str | Path) -> tuple[Folder, str]:
        relative = os.path.relpath(os.path.realpath(os.path.dirname(path)), self._where)  # noqa: PTH120
        folder = self.root
        for part in Path(relative).parts:
            node = folder.names()[part]
            assert isinstance(node, Folder)
            folder = node
        return folder, Path(path).name

    def _node(self, path: str | Path) -> Node:
        if os.path.realpath(path) == self._where:
            return self.root
        folder, name = self._find(path)
        return folder.names()[name]

    def _file(self, file: int | str | Path) -> File:
        node = self._open[file][0] if isinstance(file, int) else self._node(file)
        assert isinstance(node, File)
        return node

    def _name(self, path: str | Path, node: Node) -> None:
        folder, name = self._find(path)
        folder.pending.append(NameChange(((folder, name, node),)))

    def _link(self, source: str | Path, target: str | Path, *, result: object) -> None:
        self._name(target, self._file(source))

    def _create(self, path: str | Path, *, result: int, exclusive: bool = True) -> None:
        folder, name = self._find(path)
        node = folder.names().get(name)
        if isinstance(node, File):
            node.pending.append(0)
        else:
            node = File()
            self._name(path, node)
        self._open[result] = (node, [0])

    def _open_append(self, path: str | Path, *, result: int) -> None:
        folder, name = self._find(path)
        node = folder.names().get(name)
        if node is None:
            node = File()
            self._name(path, node)
        assert isinstance(node, File)
        self._open[result] = (node, None)

    def _open_write(self, path: str | Path, *, result: int) -> None:
        self._open[result] = (self._file(path), [0])

    def _close(self, fd: int, path: object = "", *, result: object) -> None:
        self._open.pop(fd, None)

    def _write_all(self, fd: int, data: bytes, path: object = "", *, result: object) -> None:
        file, place = self._open[fd]
        position = len(file.content()) if place is None else place[0]
        file.pending.append((position, data))
        if place is not None:
            place[0] += len(data)

    def _write_at(self, fd: int, position: int, data: bytes, path: object = "", *, result: object) -> None:
        self._file(fd).pending.append((position, data))

    def _truncate(self, file: int | str | Path, size: int, *, result: object) -> None:
        self._file(file).pending.append(size)

    def _fsync_file(self, file: int | str | Path, *, result: object) -> None:
        self._file(file).sync()

    def _fsync_dir(self, path: str | Path, *, result: object) -> None:
        node = self._node(path)
        assert isinstance(node, Folder)
        node.sync()

    def _rename(self, source: str | Path, target: str | Path, *, result: object) -> None:
        node = self._node(source)
        old, new = self._find(source), self._find(target)
        change = NameChange(((*old, None), (*new, node)))
        for folder in {old[0], new[0]}:
            folder.pending.append(change)

    def _unlink(self, path: str | Path, *, result: object, missing_ok: bool = False) -> None:
        folder, name = self._find(path)
        folder.pending.append(NameChange(((folder, name, None),)))

    def _make_dir(self, path: str | Path, *, result: object, exist_ok: bool = False) -> None:
        folder, name = self._find(path)
        if name not in folder.names():
            self._name(path, Folder())

    def _remove_dir(self, path: str | Path, *, result: object) -> None:
        self._unlink(path, result=result)

    def _set_mtime_ms(self, path: object, mtime_ms: int, *, result: object) -> None:
        """Times are not part of the model."""


def _read_tree(path: Path) -> Folder:
    names: dict[str, Node] = {}
    for child in path.iterdir():
        names[child.name] = _read_tree(child) if child.is_dir() else File(child.read_bytes())
    return Folder(names)


class Chooser:
    """Which of the changes that were not fsynced a state has; a rename is chosen once for both directories."""

    def __init__(self, state: str, chance: random.Random) -> None:
        self._state = state
        self._chance = chance
        self._chosen: dict[int, bool] = {}
        self._contents: dict[File, Content] = {}

    def names_of(self, folder: Folder) -> dict[str, Node]:
        """The names that are there."""
        if self._state == "ordered":
            return folder.names(folder.pending[: self._chance.randint(0, len(folder.pending))])
        return folder.names([change for change in folder.pending if self._is_chosen(change)])

    def _is_chosen(self, change: NameChange) -> bool:
        likely = {"all": 1.0, "synced": 0.0}.get(self._state, 0.5)
        return self._chosen.setdefault(id(change), self._chance.random() < likely)

    def content_of(self, file: File) -> Content:
        """The bytes that are there."""
        if file not in self._contents:
            self._contents[file] = Content(self._choose(file))
        return self._contents[file]

    def _choose(self, file: File) -> bytes:
        if self._state in ("all", "synced"):
            return file.content() if self._state == "all" else file.synced
        if self._state == "any":
            kept = [change for change in file.pending if self._chance.random() < 0.5]
        else:
            kept = file.pending[: self._chance.randint(0, len(file.pending))]
        if kept and not isinstance(kept[-1], int):
            position, data = kept[-1]
            kept[-1] = (position, data[: self._chance.choice([len(data), self._chance.randint(0, len(data))])])
        return file.content(kept)


def build(folder: Folder, chooser: Chooser) -> dict[str, Any]:
    """A state as nested dicts: names to bytes, or to dicts of names."""
    return {
        name: chooser.content_of(node) if isinstance(node, File) else build(node, chooser)
        for name, node in sorted(chooser.names_of(folder).items())
    }


def write_tree(tree: dict[str, Any], path: Path, written: dict[int, Path] | None = None) -> None:
    """Put a state on the real disk."""
    written = {} if written is None else written
    path.mkdir()
    for name, content in tree.items():
        if isinstance(content, dict):
            write_tree(content, path / name, written)
        elif id(content) in written:
            (path / name).hardlink_to(written[id(content)])
        else:
            (path / name).write_bytes(content)
            written[id(content)] = path / name


def crash_states(
    start: Path, job: Job, *, folder: Path, seed: int = 0, states: tuple[str, ...] = STATES, tries: int = 1
) -> Iterator[tuple[dict[str, Any], End]]:
    """Run a job, and give every state in which a crash may leave its folder, each once."""
    place = Path(os.path.realpath(folder)) / "recorded"
    shutil.copytree(start, place)
    recorder = Recorder()
    try:
        with in_front_of_durable(recorder.perform):
            job(place, recorder.promise)
    finally:
        forget_process()
    replay = Replay(place, start)
    promised: tuple[Any, ...] = ()
    chance = random.Random(seed)
    seen: set[bytes] = set()
    for number, (name, args, kwargs, result) in enumerate([("begin", (), {}, None), *recorder.operations]):
        if name == "promise":
            promised = (*promised, *args)
        elif name != "begin":
            replay.take(name, args, kwargs, result)
        for state in (one for one in states for _ in range(1 if one in ("all", "synced") else tries)):
            tree = build(replay.root, Chooser(state, chance))
            digest = hashlib.sha256(repr((tree, promised)).encode()).digest()
            if digest not in seen:
                seen.add(digest)
                where = f"{state} of what was not fsynced after operation {number}"
                yield tree, End(f"{where}, {name} {path_of(name, args) if args else ''}", promised)


def each_crash(
    start: Path, job: Job, check: Callable[[Path, End], object], *, folder: Path, every: int = 1, **options: Any
) -> int:
    """Check the states in which a crash may leave a job's folder; return how many there are.

    With `every` only one of so many is checked; a soak checks them all.

    `crash_states` has the options.
    """
    count = -1
    for count, (tree, end) in enumerate(crash_states(start, job, folder=folder, **options)):
        if FACTOR == 1 and count % every:
            continue
        place = folder / f"state-{count}"
        write_tree(tree, place)
        with noted(end):
            check(place, end)
        shutil.rmtree(place, ignore_errors=True)  # Kafka's loader may still be deleting there
    return count + 1
