"""Damages to a partition directory: what crashes, disks and people do to logs, indexes and snapshots.

`damage` takes a directory apart with a `random.Random` and says what it did. The states of an interrupted replacement
are those that Kafka's own order of renames can leave.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.faults.mutations import mutate
from tests.reference import batch as v2
from tests.reference.errors import RejectedError

SIDE = (".index", ".timeindex", ".txnindex", ".snapshot")
SEGMENT = (".log", ".index", ".timeindex", ".txnindex")


def name(base: int, suffix: str) -> str:
    return f"{base:020d}{suffix}"


def bases_of(directory: Path) -> list[int]:
    return sorted(int(path.name[:20]) for path in directory.glob("*.log"))


def _log(rng: random.Random, directory: Path) -> Path:
    return directory / name(rng.choice(bases_of(directory)), ".log")


def _side(rng: random.Random, directory: Path) -> Path | None:
    kind = rng.choice(SIDE)
    files = sorted(directory.glob(f"*{kind}"))
    return rng.choice(files) if files else None


def _entries(data: bytes) -> list[tuple[int, int]]:
    """Place and size of each batch; none where an earlier damage left bytes that cannot be walked."""
    try:
        return v2.walk(data)[0]
    except RejectedError:
        return []


def cut_log(rng: random.Random, directory: Path) -> str:
    path = _log(rng, directory)
    size = path.stat().st_size
    keep = rng.randrange(size + 1) if rng.random() < 0.5 else max(0, size - rng.randrange(1, 100))
    with path.open("r+b") as file:
        file.truncate(keep)
    return f"cut {path.name} from {size} to {keep}"


def zero_tail(rng: random.Random, directory: Path) -> str:
    path = _log(rng, directory)
    count = rng.choice((1, 17, 18, 61, 100, 5000))
    with path.open("ab") as file:
        file.write(bytes(count))
    return f"{count} zeros behind {path.name}"


def rubbish_tail(rng: random.Random, directory: Path) -> str:
    path = _log(rng, directory)
    tail = rng.randbytes(rng.randrange(1, 300))
    with path.open("ab") as file:
        file.write(tail)
    return f"{len(tail)} bytes of rubbish behind {path.name}"


def flip_bit(rng: random.Random, directory: Path) -> str:
    path = _log(rng, directory)
    data = bytearray(path.read_bytes())
    if not data:
        return f"nothing to flip in {path.name}"
    at = rng.randrange(len(data))
    data[at] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    return f"bit flipped at {at} of {path.name}"


def flip_and_repair(rng: random.Random, directory: Path) -> str:
    """A bit of one batch, with a checksum that fits again."""
    path = _log(rng, directory)
    data = path.read_bytes()
    entries = _entries(data)
    if not entries:
        return f"nothing to flip in {path.name}"
    position, size = rng.choice(entries)
    if data[position + 16] != 2:
        return "a legacy batch is left alone"
    entry = bytearray(data[position : position + size])
    at = rng.randrange(21, size)
    entry[at] ^= 1 << rng.randrange(8)
    path.write_bytes(data[:position] + v2.repair(bytes(entry)) + data[position + size :])
    return f"bit flipped at {at} of the batch at {position} of {path.name}, checksum repaired"


def zero_block(rng: random.Random, directory: Path) -> str:
    path = _log(rng, directory)
    data = bytearray(path.read_bytes())
    start = rng.randrange(len(data) + 1)
    end = min(len(data), start + rng.choice((1, 512, 4096)))
    data[start:end] = bytes(end - start)
    path.write_bytes(data)
    return f"bytes {start} to {end} of {path.name} zeroed"


def mutate_batch(rng: random.Random, directory: Path) -> str:
    path = _log(rng, directory)
    data = path.read_bytes()
    if not _entries(data):
        return f"nothing to mutate in {path.name}"
    done = mutate(rng, data, data)
    path.write_bytes(done.data)
    return f"{done.what} at entry {done.entry} of {path.name}"


def lose_side(rng: random.Random, directory: Path) -> str:
    path = _side(rng, directory)
    if path is None:
        return "no such side file"
    path.unlink()
    return f"{path.name} lost"


def empty_side(rng: random.Random, directory: Path) -> str:
    path = _side(rng, directory)
    if path is None:
        return "no such side file"
    path.write_bytes(b"")
    return f"{path.name} emptied"


def cut_side(rng: random.Random, directory: Path) -> str:
    path = _side(rng, directory)
    if path is None:
        return "no such side file"
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(len(data) + 1)])
    return f"{path.name} cut"


def swap_sides(rng: random.Random, directory: Path) -> str:
    kind = rng.choice(SIDE)
    files = sorted(directory.glob(f"*{kind}"))
    if len(files) < 2:
        return "no two such side files"
    one, two = rng.sample(files, 2)
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    return f"{one.name} and {two.name} exchanged"


def pad_indexes(rng: random.Random, directory: Path) -> str:
    """The last segment's indexes are as long as a running broker keeps them."""
    base = bases_of(directory)[-1]
    for suffix, size in ((".index", 8 * 1000), (".timeindex", 12 * 1000)):
        path = directory / name(base, suffix)
        if path.exists() and path.stat().st_size < size:
            with path.open("r+b") as file:
                file.truncate(size)
    return "indexes padded"


def orphan_side(rng: random.Random, directory: Path) -> str:
    base = bases_of(directory)[-1] + rng.randrange(1, 5000)
    suffix = rng.choice((*SIDE, ".index.swap", ".timeindex.swap", ".log.deleted", ".log.cleaned", ".snapshot.deleted"))
    (directory / name(base, suffix)).write_bytes(bytes(rng.choice((0, 8, 24, 34))))
    return f"orphan {base}{suffix}"


def lose_segment(rng: random.Random, directory: Path) -> str:
    bases = bases_of(directory)
    base = rng.choice(bases)
    (directory / name(base, ".log")).unlink()
    return f"log of {base} lost"


def half_deleted(rng: random.Random, directory: Path) -> str:
    base = rng.choice(bases_of(directory))
    count = rng.randrange(1, 5)
    for suffix in SEGMENT[:count]:
        path = directory / name(base, suffix)
        if path.exists():
            path.rename(path.with_name(path.name + ".deleted"))
    return f"{count} files of {base} renamed to .deleted"


def replacement(rng: random.Random, directory: Path) -> str:
    """A cleaner's replacement of a run of segments by one, stopped somewhere.

    The new segment holds the same batches, so what a broker serves does not depend on how far it came, unless what is
    left of both is mixed up.
    """
    bases = bases_of(directory)
    first = rng.randrange(len(bases))
    old = bases[first : first + rng.randrange(1, 4)]
    new = {suffix: b"".join((directory / name(b, suffix)).read_bytes() for b in old) for suffix in (".log",)}
    new[".index"] = (directory / name(old[0], ".index")).read_bytes() if _has(directory, old[0], ".index") else b""
    new[".timeindex"] = (
        (directory / name(old[0], ".timeindex")).read_bytes() if _has(directory, old[0], ".timeindex") else b""
    )
    steps: list[Callable[[], None]] = []
    base = old[0]
    for suffix, data in new.items():
        (directory / name(base, suffix + ".cleaned")).write_bytes(data)
        steps.append(_renaming(directory, name(base, suffix + ".cleaned"), name(base, suffix + ".swap")))
    steps += [_renaming(directory, name(b, kind), name(b, kind + ".deleted")) for b in old for kind in SEGMENT]
    steps += [_renaming(directory, name(base, suffix + ".swap"), name(base, suffix)) for suffix in new]
    done = rng.randrange(len(steps) + 1)
    for step in steps[:done]:
        step()
    return f"replacement of {old} stopped after {done} of {len(steps)} renames"


def splitting(rng: random.Random, directory: Path) -> str:
    """A segment's replacement by two, stopped somewhere: the later one is renamed first."""
    base = rng.choice(bases_of(directory))
    data = (directory / name(base, ".log")).read_bytes()
    entries = _entries(data)
    if len(entries) < 2:
        return "too few batches to split"
    position, _ = entries[rng.randrange(1, len(entries))]
    second = int.from_bytes(data[position : position + 8], "big")
    if second <= base or data[position + 16] != 2:
        return "no offset to split at"
    parts = {base: data[:position], second: data[position:]}
    steps = []
    for b, part in sorted(parts.items(), reverse=True):
        for suffix, content in ((".log", part), (".index", b""), (".timeindex", b"")):
            (directory / name(b, suffix + ".cleaned")).write_bytes(content)
            steps.append(_renaming(directory, name(b, suffix + ".cleaned"), name(b, suffix + ".swap")))
    steps += [_renaming(directory, name(base, kind), name(base, kind + ".deleted")) for kind in SEGMENT]
    steps += [
        _renaming(directory, name(b, kind + ".swap"), name(b, kind)) for b in sorted(parts) for kind in SEGMENT[:3]
    ]
    done = rng.randrange(len(steps) + 1)
    for step in steps[:done]:
        step()
    return f"split of {base} at {second} stopped after {done} of {len(steps)} renames"


def _has(directory: Path, base: int, suffix: str) -> bool:
    return (directory / name(base, suffix)).exists()


def _renaming(directory: Path, source: str, target: str) -> Callable[[], None]:
    def rename() -> None:
        if (directory / source).exists():
            (directory / source).rename(directory / target)

    return rename


LOG_DAMAGES = (cut_log, zero_tail, rubbish_tail, flip_bit, flip_and_repair, zero_block, mutate_batch)
SIDE_DAMAGES = (lose_side, empty_side, cut_side, swap_sides, pad_indexes, orphan_side)
TRANSIENT_DAMAGES = (half_deleted, replacement, splitting, lose_segment)
DAMAGES = (*LOG_DAMAGES, *SIDE_DAMAGES, *TRANSIENT_DAMAGES)


def damage(rng: random.Random, directory: Path) -> list[str]:
    """Do one to three damages; return what they were."""
    count = rng.choice((1, 1, 1, 2, 3))
    return [rng.choice(DAMAGES)(rng, directory) for _ in range(count) if bases_of(directory)]


def copy(source: Path, target: Path) -> Path:
    """A copy of a partition directory, with the times of its files."""
    shutil.copytree(source, target)
    return target
