"""Offsets at the edge: of the numbers that they can be, and of what a segment's indexes can hold."""

from __future__ import annotations

import json
import random
import shutil

import pytest

import kseg
from kseg.compaction import CleanerConfig, compact
from kseg.errors import CorruptRecordError, KsegError, LogError
from kseg.recovery.job import recover
from tests.cli.calls import call
from tests.reference import batch as v2
from tests.reference import codecs, legacy
from tests.reference.record import Record
from tests.scale import counts

LAST = 2**63 - 1


def batch_at(offset, count=1, **fields):
    records = [Record(index, 1_700_000_000_000 + index, b"k", b"v") for index in range(count)]
    data = v2.encode_batch(records, v2.Fields(base_offset=0, **fields))
    return offset.to_bytes(8, "big", signed=True) + data[8:]  # which no checksum covers


def message_at(offset, magic=1, codec=0, count=1):
    time = 1_700_000_000_000 if magic else -1
    data = legacy.encode_set([Record(index, time, b"k", b"v") for index in range(count)], magic, codec)
    return offset.to_bytes(8, "big", signed=True) + data[8:]


def write(tmp_path, base, *batches, name="t-0"):
    path = tmp_path / "log" / name
    path.mkdir(parents=True)
    (path / f"{base:020d}.log").write_bytes(b"".join(batches))
    return path


def uses(path, spare):
    """Whatever one does with a log; each call of its own, so that one that fails hides no other."""
    for isolation in ("read_uncommitted", "read_committed"):
        for how in ("raise", "skip", "column"):
            yield lambda how=how, isolation=isolation: list(
                kseg.open_log(path).read(on_corrupt=how, isolation=isolation)
            )
    yield lambda: list(kseg.open_log(path).read(LAST - 5, LAST))
    yield lambda: list(kseg.open_log(path).read(0, 2**64))
    yield lambda: list(kseg.open_log(path).batches())
    yield lambda: kseg.open_log(path).producers()
    yield lambda: kseg.open_log(path).leader_epochs()
    yield lambda: kseg.open_log(path).offset_for_time(1_700_000_000_000)
    yield lambda: kseg.open_log(path).last_stable_offset
    yield lambda: str(kseg.verify(path, deep=True, workers=1))
    jobs = [
        lambda place: kseg.append_to(place).close(),
        lambda place: compact(place, config=CleanerConfig()),
        lambda place: compact(place, config=CleanerConfig(strategy="spill"), first_dirty=0),
        lambda place: recover(place),
        lambda place: recover(place, all=True),
        lambda place: recover(place, all=True, salvage=True),
        lambda place: kseg.truncate(place, LAST - 10),
        lambda place: kseg.retain(place),
        lambda place: kseg.compaction.erase(place, keys=[b"k"]),
    ]
    for number, job in enumerate(jobs):
        yield lambda number=number, job=job: job(shutil.copytree(path.parent, spare / str(number)) / path.name)


def use(path, spare):
    for run in uses(path, spare):
        try:
            run()
        except KsegError as error:
            assert str(error)
    for words in (["cat", "--json"], ["ls"], ["dump", "--records", "--json"], ["dump"], ["verify"]):
        place = min(path.glob("*.log")) if words[0] == "dump" else path
        answer = call(words[0], place, *words[1:])
        assert answer.status in (0, 1), answer.messages
        assert (answer.status == 0) == (answer.messages == "") or words[0] == "verify"


@pytest.mark.parametrize("data", [batch_at(LAST), message_at(LAST), message_at(LAST, 0), message_at(LAST, 1, 1)])
@pytest.mark.parametrize("base", [LAST, LAST - 1, LAST - 2**31 + 1])
def test_a_batch_with_the_last_offset_there_is_was_read_as_nothing(tmp_path, base, data):
    """The end of such a log is 2**63, which the kernels cannot take; `cat` and `dump --records` showed no record."""
    path = write(tmp_path, base, data)
    log = path / f"{base:020d}.log"
    opened = kseg.open_log(path)
    for read in (lambda: list(opened.read()), lambda: list(opened.batches()), opened.producers):
        with pytest.raises(CorruptRecordError, match="the last number that an offset can have") as caught:
            read()
        assert (caught.value.path, caught.value.position, caught.value.offset) == (str(log), 0, LAST)
    assert list(opened.read(on_corrupt="skip")) == []
    answer = call("cat", path)
    assert (answer.status, answer.lines) == (1, [])
    answer = call("dump", log, "--records", "--json")
    assert answer.status == 1
    assert "which no log can hold" in answer.messages
    assert answer.lines == []
    [line] = call("dump", log, "--json").lines
    assert (json.loads(line)["last"], json.loads(line)["valid"]) == (LAST, False)
    assert call("verify", path).status == 1
    for options in ({}, {"all": True}):
        with pytest.raises(LogError, match="behind which no log goes on"):
            recover(path, **options)
    use(path, tmp_path / "spare")


@pytest.mark.parametrize("seed", range(counts(30)))
def test_offsets_near_the_edges_end_in_records_or_errors_of_kseg(tmp_path, seed):
    rng = random.Random(seed)
    base = rng.choice([0, 5, 2**31 - 1, LAST - 2**31, LAST - 2**31 + 1, LAST - 2, LAST - 1, LAST, rng.randrange(2**63)])
    batches, offset = [], base
    for _ in range(rng.randrange(1, 5)):
        offset += rng.choice([0, 1, 2, 2**31 - 2, 2**31 - 1, 2**31, 2**32, LAST - offset, LAST - offset - 1])
        place = min(offset, LAST) if rng.random() < 0.9 else rng.choice([-1, -(2**63), 0, LAST])
        kind = rng.randrange(4)
        if kind == 0:
            batches.append(message_at(place, rng.randrange(2), rng.choice([0, 0, 1])))
        else:
            count = rng.choice([1, 1, 2, 5])
            fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0} if kind == 1 else {}
            if rng.random() < 0.3:
                fields["flags"] = v2.TXN_BIT if kind == 1 else 0
            data = batch_at(place, count, **fields)
            if rng.random() < 0.2:  # more offsets than records
                changed = bytearray(data)
                changed[23:27] = rng.choice([2**31 - 1, 1, 7]).to_bytes(4, "big")
                data = v2.repair(bytes(changed))
            batches.append(data)
            offset += count
    path = write(tmp_path, base, *batches)
    if rng.random() < 0.3 and base < LAST - 3:
        (path / f"{min(base + rng.choice([1, 3, 2**31]), LAST):020d}.log").write_bytes(rng.choice([b"", batches[-1]]))
    use(path, tmp_path / "spare")


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("is_last", [True, False])
def test_offsets_too_far_for_a_segment_are_told_with_what_mends_them(oracle, tmp_path, is_clean, is_last):
    """A cleaner before Kafka 2.0 made such segments; the hint was to look at what is sound, which mends nothing."""
    far = 2**31
    path = write(tmp_path, 0, batch_at(0), batch_at(5), batch_at(far), batch_at(far + 3))
    if not is_last:
        (path / f"{far + 9:020d}.log").write_bytes(batch_at(far + 9))
    if is_clean:
        (path.parent / ".kafka_cleanshutdown").write_bytes(b"")
    kafkas = shutil.copytree(path.parent, tmp_path / "kafkas") / path.name
    offsets = [0, 5, far, far + 3] + ([] if is_last else [far + 9])
    uses_of_it = [lambda: list(kseg.open_log(path).read())]
    if is_last:  # an appender looks at no other segment
        uses_of_it.append(lambda: kseg.append_to(path).close())
    for use_it in uses_of_it:
        with pytest.raises(CorruptRecordError, match="too far from 0, the base") as caught:
            use_it()
        assert "run 'kseg recover --all'" in (caught.value.hint or "")
        assert (caught.value.path, caught.value.offset) == (str(path / f"{0:020d}.log"), far)
    recover(path, all=True)
    log = kseg.open_log(path)
    assert [offset for batch in log.read() for offset in batch.column("offset").to_pylist()] == offsets
    loaded = oracle.load(kafkas, clean=False)
    assert [[segment.base_offset, segment.size] for segment in log.segments] == loaded["segments"]
    kseg.append_to(path).close()


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_behind_the_offset_of_their_wrapper_are_told_by_verify(oracle, tmp_path, magic):
    """Kafka's classes take them too; what a reader gets is in docs/limits.md."""
    path = write(tmp_path, 0, message_at(0, magic, 1, count=3), batch_at(1, 5))
    assert [record[0] for record in oracle.dump(path)[0]["records"]] == [0, 1, 2]
    assert [offset for batch in kseg.open_log(path).read() for offset in batch.column("offset").to_pylist()] == [
        *range(3),
        *range(1, 6),
    ]
    report = kseg.verify(path, deep=True, workers=1)
    assert [(finding.code, finding.position) for finding in report.findings if finding.severity == "damage"] == [
        ("KS122", 0)
    ]


@pytest.mark.parametrize(("magic", "rows"), [(0, [8, 13, 10]), (1, [0, 5, 2])])
def test_messages_that_fall_within_their_wrapper_are_given_as_they_are(oracle, tmp_path, magic, rows):
    inner = b"".join(legacy.encode_message(Record(offset, 1, b"k", b"v"), magic) for offset in rows)
    wrapper = legacy.encode_message(Record(10, 1, None, codecs.compress(codecs.GZIP, inner, magic)), magic, codecs.GZIP)
    path = write(tmp_path, 0, batch_at(0, 8), wrapper, batch_at(11, 5))
    given = [8, 13, 10]
    assert [record[0] for record in oracle.dump(path)[1]["records"]] == given
    read = [offset for batch in kseg.open_log(path).read() for offset in batch.column("offset").to_pylist()]
    assert read == [*range(8), *given, *range(11, 16)]
    findings = kseg.verify(path, deep=True, workers=1).findings
    assert "KS122" in {finding.code for finding in findings if finding.severity == "damage"}
