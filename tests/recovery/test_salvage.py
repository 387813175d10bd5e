"""Salvage keeps every batch that is sound, in its place, and says what is lost."""

from __future__ import annotations

import contextlib
import random
import shutil
import struct

import pytest

import kseg
from tests.builders import LogBuilder
from tests.kafka.oracle import OracleError
from tests.recovery.damages import DAMAGES, bases_of, copy, flip_bit, zero_block
from tests.recovery.states import CONFIG, NOW, content
from tests.reference import batch as v2
from tests.reference import codecs
from tests.reference.record import Record
from tests.scale import counts


def batches(directory):
    """All batches of a partition as (offset, bytes), in order."""
    found = []
    for base in bases_of(directory):
        data = (directory / f"{base:020d}.log").read_bytes()
        found += [data[position : position + size] for position, size in v2.walk(data)[0]]
    return found


def offsets(batch):
    base = int.from_bytes(batch[:8], "big")
    return base, base + int.from_bytes(batch[23:27], "big") + 1


def test_only_what_is_damaged_is_lost(oracle, logs, tmp_path):
    """A flipped bit costs one batch, a zeroed block those that it touches; a broker serves all the others."""
    plain = [entry for i, entry in enumerate(logs) if i % 3 != 2]
    for number in range(counts(20)):
        rng = random.Random(number)
        source, _ = rng.choice(plain)
        directory = copy(source, tmp_path / str(number) / "t-0")
        before = batches(directory)
        data = content(directory)
        what = rng.choice([flip_bit, flip_bit, zero_block])(rng, directory)
        hit = set()
        for name, old in data.items():
            new = (directory / name).read_bytes()
            if name.endswith(".log") and new != old:
                places = [i for i, (one, two) in enumerate(zip(old, new, strict=True)) if one != two]
                for position, size in v2.walk(old)[0]:
                    if any(position <= place < position + size for place in places):
                        hit.add(old[position : position + size])
        report = kseg.recover(directory, salvage=True, all=True, config=CONFIG, now_ms=NOW).partitions[0]
        left = batches(directory)
        missing = [batch for batch in before if batch not in left]
        # what a checksum does not cover (leader epoch, a base offset that still rises, a magic above 2) is not seen
        assert set(missing) <= hit, what
        assert len(left) >= len(before) - len(hit)
        for batch in missing:
            start, end = offsets(batch)
            seen = any(low <= start and end <= high for low, high in report.lost)
            behind = start >= report.end_offset  # how far the log went is not known then
            unseen_change = len(left) == len(before)
            assert seen or behind or unseen_change, (what, report.lost, start, end)
        loaded = oracle.load(copy(directory, tmp_path / f"k{number}" / "t-0"))
        kept = [[segment.base_offset, segment.size] for segment in kseg.open_log(directory).segments]
        assert loaded["segments"] == kept, what
        shutil.rmtree(directory.parent)


def test_a_base_offset_that_is_too_high_costs_its_own_batch_only(logs, tmp_path):
    directory = copy(logs[0][0], tmp_path / "t-0")
    base = bases_of(directory)[1]
    path = directory / f"{base:020d}.log"
    data = bytearray(path.read_bytes())
    entries = v2.walk(bytes(data))[0]
    position, size = entries[len(entries) // 2]
    old = bytes(data[position : position + size])
    following = bases_of(directory)[2]
    struct.pack_into(">q", data, position, following - 1 - (offsets(old)[1] - offsets(old)[0]))
    before = batches(directory)
    path.write_bytes(data)
    report = kseg.recover(directory, salvage=True, config=CONFIG, now_ms=NOW).partitions[0]
    assert batches(directory) == [batch for batch in before if batch != old]
    assert any(start <= offsets(old)[0] < end for start, end in report.lost)
    kseg.undo_repair(directory)
    assert path.read_bytes() == bytes(data)


def changed(data, entry, **fields):
    """A segment's bytes with other values in the header of one of its batches, under a checksum that fits."""
    position, size = entry
    batch = bytearray(data[position : position + size])
    for name, value in fields.items():
        place, code = {"base": (0, ">q"), "length": (8, ">i"), "delta": (23, ">i")}[name]
        struct.pack_into(code, batch, place, value)
    return data[:position] + v2.repair(bytes(batch)) + data[position + size :]


OUT_OF_ORDER = {  # which batches of the middle of a segment claim what, by their distance from the first of them
    "reaches over those behind": {0: {"delta": 500_000}},
    "two that are too high": {0: {"base": 1 << 20}, 1: {"base": 1 << 21}},
    "too high before one without a length": {0: {"base": 1 << 20}, 1: {"length": -1}},
    "slightly too low": {1: {"base": -1}},
}


def test_batches_that_contradict_the_others_cost_themselves_only(oracle, tmp_path):
    source = tmp_path / "t-0"
    oracle.gen(source, 5, 60, roll=0, txn=0, gap=0)
    path = source / f"{bases_of(source)[-1]:020d}.log"
    whole = path.read_bytes()
    entries = v2.walk(whole)[0]
    middle = len(entries) // 2
    for what, changes in OUT_OF_ORDER.items():
        directory = copy(source, tmp_path / what / "t-0")
        before, data = batches(directory), whole
        for step, fields in changes.items():
            first = offsets(before[middle + step])[0]
            wrong = {name: value + first if name == "base" else value for name, value in fields.items()}
            data = changed(data, entries[middle + step], **wrong)
        (directory / path.name).write_bytes(data)
        report = kseg.recover(directory, salvage=True, all=True, config=CONFIG, now_ms=NOW).partitions[0]
        gone = [before[middle + step] for step in changes]
        assert batches(directory) == [batch for batch in before if batch not in gone], what
        assert report.lost == ((offsets(gone[0])[0], offsets(gone[-1])[1]),), what
        rows = sum(batch.num_rows for batch in kseg.open_log(directory).read())
        assert rows == sum(int.from_bytes(batch[57:61], "big") for batch in before if batch not in gone), what
        assert oracle.load(directory)["logEnd"] == report.end_offset == offsets(before[-1])[1], what


MARKER_DAMAGES = {  # bytes of a marker's batch: what a broker reads all the same is kept
    "short key": {65: 6},
    "version of key": {66: 0x80},
    "type": {69: 7},
    "type of another log": {69: 3},
    "no value": {70: 1},
    "version of value": {71: 0x80},
    "record length": {61: 30},
    "headers": {77: 2},
    "no record": {60: 0},
    "more records": {60: 2},
    "newer value": {72: 9},
    "attributes": {62: 1},
}


def packed(marker, codec, payload):
    """A marker's batch with its records compressed, which no broker writes and every broker reads."""
    header = bytearray(marker[:61])
    header[22] |= codec
    packed_payload = payload if codec > 4 else codecs.compress(codec, payload)
    return v2.repair(bytes(header[:8]) + struct.pack(">i", 49 + len(packed_payload)) + header[12:] + packed_payload)


def odd_markers(marker):
    """Markers by what is odd about them."""
    for what, change in MARKER_DAMAGES.items():
        changed_marker = bytearray(marker)
        for place, value in change.items():
            changed_marker[place] = value
        yield what, v2.repair(bytes(changed_marker))
    for codec in (1, 2, 3, 4):
        yield f"packed {codec}", packed(marker, codec, marker[61:])
        yield f"packed {codec} and cut", packed(marker, codec, marker[61:-2])
    yield "packed and of no type", packed(marker, 4, marker[61:69] + bytes([7]) + marker[70:])
    yield "packed by nobody knows what", packed(marker, 6, marker[61:])


def test_a_marker_that_no_broker_can_read_is_left_out_and_told(oracle, tmp_path):
    """Under a fitting checksum too: a broker does not start on it, recovering or not."""
    source = tmp_path / "t-0"
    oracle.gen(source, 3, 60, roll=0.1, txn=1, gap=0)
    path = source / f"{bases_of(source)[2]:020d}.log"
    whole = path.read_bytes()
    places = [position for position, _ in v2.walk(whole)[0]]
    first = next(at for at in places if whole[at + 22] & 0x20)
    left_out = set()
    for number, (what, marker) in enumerate(odd_markers(whole[first : first + 78])):
        directory = copy(source, tmp_path / str(number) / "t-0")
        (directory / path.name).write_bytes(whole[:first] + marker + whole[first + 78 :])
        for snapshot in directory.glob("*.snapshot"):
            snapshot.unlink()
        if number % 2:  # the last batch of the log
            (directory / path.name).write_bytes(whole[:first] + marker)
            for later in [base for base in bases_of(directory) if base > int(path.stem)]:
                (directory / f"{later:020d}.log").unlink()
        try:
            oracle.load(copy(directory, tmp_path / f"k{number}" / "t-0"))
        except OracleError:
            left_out.add(what)
            untouched = content(directory)
            for as_kafka in (False, True):  # what a broker cannot load is not called recovered
                with pytest.raises(kseg.LogError, match=r"a transaction marker cannot be read.*--salvage"):
                    kseg.recover(directory, as_kafka=as_kafka, all=True, config=CONFIG, now_ms=NOW)
            assert content(directory) == untouched
        is_told = any(finding.code == "KS111" for finding in kseg.verify(directory).findings)
        assert is_told == (what in left_out or what.startswith("packed")), what
        report = kseg.recover(directory, salvage=True, all=True, config=CONFIG, now_ms=NOW).partitions[0]
        assert (marker not in batches(directory)) == (what in left_out), what
        assert report.lost == ((offsets(marker),) if what in left_out else ()), what
        oracle.load(directory)
    cut = {f"packed {codec} and cut" for codec in (1, 2, 3, 4)}
    assert left_out == {*list(MARKER_DAMAGES)[:8], *cut, "packed and of no type", "packed by nobody knows what"}


def test_a_batch_outside_of_its_producers_open_transaction_is_left_out_and_told(oracle, tmp_path):
    """A broker does not start on it; and what was open before the segment is open in it."""
    outside = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 3}
    for number, roll in enumerate((False, True)):
        builder = LogBuilder(tmp_path / str(number)).segment(0).batch(2).transaction(2, producer_id=7)
        builder = builder.transaction(1, producer_id=7, base_sequence=2)
        builder = builder.segment(5) if roll else builder
        directory = builder.batch(2, **outside).batch(4).batch(1, **outside).batch(1).write()
        before = batches(directory)
        with pytest.raises(OracleError, match="InvalidTxnState"):
            oracle.load(copy(directory, tmp_path / f"k{number}" / directory.name))
        for as_kafka in (False, True):
            with pytest.raises(kseg.LogError, match=r"offset 5: .*outside of its open transaction; .*--salvage --all"):
                kseg.recover(directory, as_kafka=as_kafka, all=True, config=CONFIG, now_ms=NOW)
        report = kseg.recover(directory, salvage=True, all=True, config=CONFIG, now_ms=NOW).partitions[0]
        assert report.lost == ((5, 7), (11, 12))
        assert batches(directory) == [batch for batch in before if offsets(batch) not in report.lost]
        loaded = oracle.load(directory)
        assert (loaded["logEnd"], loaded["lastStable"]) == (13, 2)


def test_of_a_plain_producers_batches_those_go_that_claim_a_transaction(oracle, tmp_path):
    """A wrong bit in one batch costs that batch, and not all that the producer wrote behind it."""
    plain = {"producer_id": 7, "producer_epoch": 0}
    builder = LogBuilder(tmp_path).segment(0).batch(1, **plain, base_sequence=0).transaction(2, producer_id=7)
    for sequence in range(3, 9):
        builder = (builder.segment() if sequence % 3 == 0 else builder).batch(1, **plain, base_sequence=sequence)
    directory = builder.write()
    before = batches(directory)
    with pytest.raises(OracleError, match="InvalidTxnState"):
        oracle.load(copy(directory, tmp_path / "k" / directory.name))
    report = kseg.recover(directory, salvage=True, all=True, config=CONFIG, now_ms=NOW).partitions[0]
    assert report.lost == ((1, 3),)
    assert batches(directory) == [batch for batch in before if offsets(batch) != (1, 3)]
    loaded = oracle.load(directory)
    assert loaded["logEnd"] == loaded["lastStable"] == 9


def test_batches_inside_a_torn_record_do_not_take_the_place_of_the_logs(tmp_path):
    """However many there are: their offsets lie before those of the batches of the log."""
    inside = b"".join(v2.encode_batch([Record(i, 1, b"k", b"v")], v2.Fields(i, max_timestamp=1)) for i in range(30))
    directory = LogBuilder(tmp_path).segment(0).empty(100).batch(1).batch(1).batch(1).batch(1).write()
    before = batches(directory)
    torn = v2.encode_batch([Record(104, 1, b"k", inside)], v2.Fields(104, max_timestamp=1))[:-5]
    with (directory / f"{0:020d}.log").open("ab") as file:
        file.write(torn)
    kseg.recover(directory, salvage=True, all=True, config=CONFIG, now_ms=NOW)
    assert batches(directory) == before


def sound(directory, base, end):
    """The batches of a segment whose offsets lie in it, with their (first, last) offsets; of wrappers last is known."""
    data = (directory / f"{base:020d}.log").read_bytes()
    found, position = [], 0
    while position < len(data):
        batch = data[position : position + 12 + int.from_bytes(data[position + 8 : position + 12], "big")]
        first, behind = offsets(batch) if batch[16] >= 2 else (int.from_bytes(batch[:8], "big"),) * 2
        last = behind - 1 if batch[16] >= 2 else behind
        if base <= first <= last and (end is None or last < end):
            found.append((batch, first, last))
        position += len(batch)
    return found


def longest_rising(batches):
    """How many batches there are at most whose offsets rise from each to the next."""
    lengths = []
    for _, first, _ in batches:
        before = [length for length, (_, _, last) in zip(lengths, batches, strict=False) if last < first]
        lengths.append(max(before, default=0) + 1)
    return max(lengths, default=0)


def test_salvage_never_loses_more_than_kafka(oracle, logs, tmp_path):
    """Every batch that Kafka keeps is kept, but for those whose offsets contradict others: of these as many as can be.

    A batch that reaches over those behind it, or falls back behind those before it, no reader can use with them.
    """
    for number in range(counts(30)):
        rng = random.Random(2000 + number)
        source, _ = rng.choice(logs)
        ours = copy(source, tmp_path / "ours" / "t-0")
        what = rng.choice(DAMAGES)(rng, ours)
        kafkas = copy(ours, tmp_path / "kafkas" / "t-0")
        report = kseg.recover(ours, salvage=True, all=True, config=CONFIG, now_ms=NOW).partitions[0]
        with contextlib.suppress(kseg.LogError):  # no broker starts on it
            kseg.recover(kafkas, as_kafka=True, all=True, config=CONFIG, now_ms=NOW)
            bases = bases_of(ours)
            assert set(bases_of(kafkas)) <= set(bases), what
            for base, end in zip(bases, [*bases[1:], None], strict=True):
                kept = sound(ours, base, end)
                theirs = sound(kafkas, base, end) if base in bases_of(kafkas) else []
                assert longest_rising(kept) == len(kept) >= longest_rising(theirs), what
                for i, (batch, first, last) in enumerate(theirs):
                    before = [entry for entry in theirs[:i] if entry in kept and entry[2] >= first]
                    behind = [entry for entry in kept if entry not in theirs[:i] and entry[1] <= last]
                    assert (batch, first, last) in kept or before or behind, what
        loaded = oracle.load(copy(ours, tmp_path / f"k{number}" / "t-0"))
        assert loaded["logEnd"] == report.end_offset, what
        for place in ("ours", "kafkas", f"k{number}"):
            shutil.rmtree(tmp_path / place, ignore_errors=True)  # the broker's delayed deletions go on


def test_healthy_logs_lose_nothing(golden):
    for mode in ({}, {"salvage": True}):
        report = kseg.recover(golden / "before", all=True, dry_run=True, **mode)
        assert len(report.partitions) > 20
        assert [one for one in report.partitions if one.cuts or one.dropped_segments or one.lost or one.error] == []
