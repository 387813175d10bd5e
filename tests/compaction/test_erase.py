"""Erasure: what was asked for is gone from the files, and nothing else has changed."""

from __future__ import annotations

import base64
import dataclasses
import json
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kseg
from kseg.compaction import erase, read_keys
from kseg.errors import OptionError, StorageError
from kseg.progress import Progress
from kseg.storage import LocalStore
from tests.builders import LogBuilder
from tests.cli.calls import call, run
from tests.compaction.rounds import START_MS, Setup
from tests.reference.record import Record
from tests.scale import counts

SECRET = b"person-4711"


def shows_secret(text):
    """Whether the key itself is there, in any form that a file of keys has; digests may hold any few digits."""
    return any(form in text for form in ("person-", SECRET.hex(), base64.b64encode(SECRET).decode().rstrip("=")))


def rows_of(directory: Path) -> list[tuple]:
    found = kseg.open_log(directory).read(columns=["offset", "timestamp", "key", "value", "headers"])
    return [tuple(row.values()) for batch in found for row in batch.to_pylist()]


def all_bytes(directory: Path) -> bytes:
    return b"".join(p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file())


@pytest.fixture
def people(tmp_path) -> Path:
    """Three segments; the person is in the first and the last, which is the active one."""
    builder = LogBuilder(tmp_path / "data", "people").segment()
    builder.record(b"a", b"1").record(SECRET, b"secret").record(b"b", None, codec="zstd")
    builder.segment().record(b"c", b"3").record(None, b"no key")
    return builder.segment().record(b"d", b"4").record(SECRET, b"again").write()


@pytest.mark.parametrize("seed", range(counts(12)))
def test_rows_go_and_nothing_else_moves(oracle, tmp_path, seed):
    directory = tmp_path / "data" / "t-0"
    setup = Setup(seed)
    oracle.gen(directory, seed, 100, **setup.options)
    for snapshot in directory.glob("*.snapshot"):
        snapshot.unlink()
    before = rows_of(directory)
    state = oracle.load(shutil.copytree(directory, tmp_path / "before" / "t-0"))
    chosen = set(random.Random(seed).sample(sorted({row[2] for row in before if row[2] is not None}), 3))
    report = erase(tmp_path / "data", keys=chosen)
    assert report.is_proof
    assert report.records >= sum(row[2] in chosen for row in before) > 0
    assert rows_of(directory) == [row for row in before if row[2] not in chosen]
    after = oracle.load(shutil.copytree(directory, tmp_path / "after" / "t-0"))
    for name in ("logStart", "logEnd", "lastStable", "producers", "epochs"):
        assert after[name] == state[name], name
    assert len(after["segments"]) == len(state["segments"])


def test_the_active_segment_is_erased_too_and_the_end_stays(people):
    end = kseg.open_log(people).end_offset
    untouched = sorted(people.glob("*.log"))[1].read_bytes()
    report = erase(people, keys=[SECRET])
    assert (report.records, report.left, report.is_proof) == (2, 0, True)
    assert SECRET not in all_bytes(people)
    assert kseg.open_log(people).end_offset == end
    assert sorted(people.glob("*.log"))[1].read_bytes() == untouched
    (place,) = report.places
    assert [segment.records for segment in place.segments] == [1, 1]
    assert all(segment.digest_before != segment.digest_after for segment in place.segments)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_the_end_stays_where_the_last_record_of_a_legacy_batch_goes(oracle, tmp_path, magic, codec):
    records = [Record(offset, START_MS, key, b"v", ()) for offset, key in enumerate([b"a", b"b", SECRET])]
    directory = LogBuilder(tmp_path / "data").segment().legacy(records, codec=codec, magic=magic).write()
    assert erase(directory, keys=[SECRET]).is_proof
    assert [row[0] for row in rows_of(directory)] == [0, 1]
    assert kseg.open_log(directory).end_offset == 3
    assert oracle.load(directory)["logEnd"] == 3


def test_keys_are_in_the_report_as_keyed_hashes_alone(people):
    first, second = (erase(people, keys=[SECRET], dry_run=True) for _ in range(2))
    assert first.key_hashes != second.key_hashes
    given = [erase(people, keys=[SECRET], dry_run=True, hash_secret=b"s").key_hashes for _ in range(2)]
    assert given[0] == given[1]
    assert not shows_secret(str(first.to_dict()) + str(first))


def test_what_a_broker_set_aside_and_gave_up_is_erased_too(people):
    data = people.parent
    aside = data / "people-1.0123456789abcdef0123456789abcdef-delete"
    shutil.copytree(people, aside)
    (people / "00000000000000000099.log.deleted").write_bytes(SECRET)
    quarantine = people / ".kseg" / "quarantine" / "run"
    quarantine.mkdir(parents=True)
    shutil.copy(people / "00000000000000000000.log", quarantine)
    report = erase(data, keys=[SECRET], topics=["people"])
    assert report.is_proof
    assert report.records == 4
    assert len(report.deleted_files) == len(report.deleted_quarantine) == 1
    assert SECRET not in all_bytes(data)


def test_a_predicate_chooses_by_key_value_and_headers(people):
    report = erase(people, predicate=lambda batch: pc.equal(batch.column("value"), pa.scalar(b"3", pa.binary())))
    assert report.records == 1
    assert b"c" not in {row[2] for row in rows_of(people)}
    broken = erase(people, predicate=lambda batch: [True])
    assert "one truth value for each row" in broken.places[0].error


def test_keys_come_from_arrow_and_files(people, tmp_path):
    assert erase(people, keys=pa.table({"key": [SECRET]}), dry_run=True).records == 2
    assert erase(people, keys=pa.chunked_array([[SECRET.decode()]]), dry_run=True).records == 2
    for key_format, line in (("utf8", SECRET), ("hex", SECRET.hex().encode()), ("base64", b"cGVyc29uLTQ3MTE=")):
        (tmp_path / "keys").write_bytes(b"\n" + line + b"\n")
        answer = call("erase", people, "--keys", tmp_path / "keys", "--key-format", key_format, "--dry-run", "--json")
        assert answer.status == 0, answer.messages
        assert answer.objects[-1]["summary"]["records"] == 2
        assert not shows_secret(answer.text)


@pytest.mark.parametrize(
    "keys",
    [None, b"one", [None], [7], 7, [], pa.array([7]), pa.table({}), pa.table({"id": [7], "email": [SECRET]})],
)
def test_wrong_keys_are_refused(people, keys):
    with pytest.raises(OptionError):
        erase(people, keys=keys)


def test_a_data_frame_of_pandas_gives_its_keys_and_not_the_names_of_its_columns(people):
    assert erase(people, keys=pd.DataFrame({"id": [7], "key": [SECRET]}), dry_run=True).records == 2
    assert erase(people, keys=pd.Series([SECRET.decode()]), dry_run=True).records == 2


def test_names_of_a_mapping_were_taken_for_keys_and_told_as_proof(people):
    with pytest.raises(OptionError, match="must be a collection of keys, got dict"):
        erase(people, keys={"key": [SECRET]}, dry_run=True)


def test_a_text_that_is_no_unicode_ended_in_an_error_with_the_key_in_it(people):
    with pytest.raises(OptionError) as told:
        erase(people, keys=[SECRET.decode() + "\udc80"], dry_run=True)
    assert not shows_secret(str(told.value))
    assert told.value.__cause__ is None
    assert told.value.__suppress_context__


def test_an_empty_secret_was_replaced_by_a_random_one_without_a_word(people, tmp_path):
    """Two reports could not be compared then, though the same file was given for both."""
    (tmp_path / "keys").write_bytes(SECRET)
    (tmp_path / "secret").touch()
    with pytest.raises(OptionError, match="hash_secret is bytes, at least one"):
        erase(people, keys=[SECRET], hash_secret=b"", dry_run=True)
    answer = run("erase", people, "--keys", tmp_path / "keys", "--hash-secret", tmp_path / "secret", "--dry-run")
    assert answer.status == 2


@pytest.mark.parametrize("secret", ["abc", 5])
def test_a_secret_that_is_no_bytes_ended_the_run_when_all_was_erased(people, secret):
    before = all_bytes(people)
    with pytest.raises(OptionError, match="hash_secret"):
        erase(people, keys=[SECRET], hash_secret=secret)
    assert all_bytes(people) == before


@pytest.mark.parametrize("dry_run", [True, False])
def test_the_progress_of_an_erasure_went_to_200_percent(people, dry_run):
    class Recorded(Progress):
        phases: ClassVar[list[list[object]]] = []

        def begin(self, phase, total, unit="B"):
            self.phases.append([phase, total, 0])

        def advance(self, amount):
            self.phases[-1][2] += amount

    Recorded.phases.clear()
    erase(people, keys=[SECRET], dry_run=dry_run, progress=Recorded())
    names = ["people-0 search"] if dry_run else ["people-0 search", "people-0 erase", "people-0 last look"]
    assert [name for name, _, _ in Recorded.phases] == names
    assert all(total == done > 0 for _, total, done in Recorded.phases)


@pytest.mark.parametrize(
    ("written", "complaint"),
    [(b"", "holds no key"), (b"\r\n \n", "holds no key"), (SECRET.decode().encode("utf-16"), "line 1 .* is not utf8")],
)
def test_a_file_without_keys_or_in_another_encoding_is_refused(people, tmp_path, written, complaint):
    (tmp_path / "keys").write_bytes(written)
    with pytest.raises(OptionError, match=complaint):
        read_keys(tmp_path / "keys")
    assert run("erase", people, "--keys", tmp_path / "keys", "--yes").status == 2


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path):
    (tmp_path / "keys").write_bytes(b"\xef\xbb\xbf" + SECRET + b"\r\n")
    assert read_keys(tmp_path / "keys").to_pylist() == [SECRET]


def test_a_proof_was_missing_in_what_programs_read(people):
    report = erase(people, keys=[SECRET])
    told = report.to_dict()
    assert (told["records"], told["left"], told["is_proof"]) == (2, 0, True)
    assert not erase(people, keys=[SECRET], dry_run=True).to_dict()["is_proof"]


def test_a_predicate_in_the_current_directory_was_not_found(people, tmp_path):
    """The path of a program has its own folder, and not the current one."""
    (tmp_path / "erased_rows.py").write_text("def chosen(batch):\n    return [True] * batch.num_rows\n")
    program = f"import sys; sys.path.remove(''); sys.path[:0] = [{str(Path(kseg.__file__).parent.parent)!r}]\n"
    program += "from kseg.cli.main import main; sys.exit(main(sys.argv[1:]))"
    words = ["erase", str(people), "--predicate", "erased_rows:chosen", "--dry-run", "--json"]
    done = subprocess.run(
        [sys.executable, "-c", program, *words], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["summary"]["records"] == 7


def test_a_predicate_that_fails_stops_its_partition_and_tells_no_record(people):
    before = all_bytes(people)
    report = erase(people, predicate=lambda batch: {}[batch.column("key")[0].as_py()])
    assert report.failed[0].error == "the predicate failed with KeyError"
    assert all_bytes(people) == before


def test_it_asks_first(people, tmp_path):
    (tmp_path / "keys").write_bytes(SECRET)
    before = all_bytes(people)
    answer = run("erase", people, "--keys", tmp_path / "keys")
    assert answer.status == 2
    assert "--yes" in answer.messages
    assert all_bytes(people) == before
    answer = run("erase", people, "--keys", tmp_path / "keys", "--yes")
    assert answer.status == 0
    assert "a last look found none" in answer.text


def test_damage_is_told_and_the_rest_is_erased(tmp_path):
    for topic in ("bad", "good"):
        builder = LogBuilder(tmp_path / "data", topic).segment().record(SECRET, b"x").record(b"k", b"v")
        (builder.corrupt(byte=64) if topic == "bad" else builder).write()
    report = erase(tmp_path / "data", keys=[SECRET])
    assert not report.is_proof
    assert "checksum" in report.failed[0].error
    assert SECRET not in all_bytes(tmp_path / "data" / "good-0")


def test_records_of_a_directory_that_failed_are_not_told_as_erased(people, monkeypatch):
    def full_disk(*_):
        raise StorageError("no space left on the device", path=str(people))

    monkeypatch.setattr("kseg.compaction.erase_job.staging", full_disk)
    report = erase(people, keys=[SECRET])
    assert not report.is_proof
    text = "\n".join(report.lines())
    assert "0 records erased in 0 directories" in text
    assert "a last look" not in text
    assert "2 records that were found there may still be there" in text
    assert SECRET in all_bytes(people)


def test_what_only_leftovers_hold_is_counted_and_asked_for_too(people, tmp_path):
    """A dry run found nothing in the segments, and the command line was content with that."""
    given_up = people / "00000000000000000099.log.deleted"
    shutil.copy(people / "00000000000000000000.log", given_up)
    quarantine = people / ".kseg" / "quarantine" / "run"
    quarantine.mkdir(parents=True)
    shutil.copy(people / "00000000000000000000.log", quarantine)
    before = all_bytes(people)
    planned = erase(people, keys=[SECRET], dry_run=True)
    assert (planned.deleted_files, planned.deleted_quarantine) == ((str(given_up),), (str(quarantine),))
    assert "would be deleted: " in str(planned)
    assert all_bytes(people) == before
    assert erase(people, keys=[SECRET]).is_proof
    assert not (people / ".kseg").exists()
    given_up.write_bytes(SECRET)
    (tmp_path / "keys").write_bytes(SECRET)
    answer = run("erase", people, "--keys", tmp_path / "keys")
    assert answer.status == 2
    assert "--yes" in answer.messages


def test_the_quarantine_of_a_partition_without_segments_is_searched(people):
    lost = people.parent / "people-1"
    quarantine = lost / ".kseg" / "quarantine" / "run"
    shutil.copytree(people, quarantine)
    report = erase(people.parent, keys=[SECRET])
    assert report.deleted_quarantine == (str(quarantine),)
    assert SECRET not in all_bytes(people.parent)


def test_what_was_set_aside_is_found_beside_one_partition_and_where_nothing_else_is_left(people):
    aside = people.parent / "people-0.0123456789abcdef0123456789abcdef-future"
    shutil.copytree(people, aside)
    other = people.parent / "people-1.0123456789abcdef0123456789abcdef-delete"
    shutil.copytree(people, other)
    assert erase(people, keys=[SECRET]).records == 4
    assert SECRET not in all_bytes(aside)
    shutil.rmtree(people)
    shutil.rmtree(aside)
    assert erase(people.parent, keys=[SECRET], topics=["people"]).records == 2
    assert SECRET not in all_bytes(other)


@pytest.mark.parametrize("name", ["people-1.0123456789abcdef0123456789abcdef-delete", "people-1"])
@pytest.mark.parametrize("left", ["log.deleted", "log.cleaned", "index.deleted"])
def test_a_directory_of_given_up_files_alone_ended_the_erasure(people, name, left):
    directory = people.parent / name
    quarantine = directory / ".kseg" / "quarantine" / "20260101T000000.000Z"
    quarantine.mkdir(parents=True)
    shutil.copy(people / f"{0:020d}.log", quarantine / f"{0:020d}.log")
    given_up = directory / f"{0:020d}.{left}"
    shutil.copy(people / f"{0:020d}.log", given_up)
    planned = erase(people.parent, keys=[SECRET], dry_run=True)
    assert (planned.deleted_files, planned.deleted_quarantine) == ((str(given_up),), (str(quarantine),))
    report = erase(people.parent, keys=[SECRET])
    assert not [place.error for place in report.places if place.error]
    assert (report.deleted_files, report.deleted_quarantine) == (planned.deleted_files, planned.deleted_quarantine)
    assert SECRET not in all_bytes(people.parent)


def test_given_up_files_without_a_hidden_folder_were_left_and_not_told(people):
    given_up = people.parent / "people-1" / f"{0:020d}.index.deleted"
    given_up.parent.mkdir()
    given_up.write_bytes(SECRET)
    assert erase(people.parent, keys=[SECRET]).deleted_files == (str(given_up),)
    assert not given_up.exists()


def test_files_of_a_replacement_that_was_interrupted_went_and_were_not_told(people):
    """A broker that starts drops `.cleaned` files, and `.swap` files behind them: both hold records."""
    for number, state in ((3, "cleaned"), (5, "swap"), (0, "cleaned.txt")):
        shutil.copy(people / f"{0:020d}.log", people / f"{number:020d}.log.{state}")
    report = erase(people, keys=[SECRET])
    assert [Path(path).name[18:] for path in report.deleted_files] == ["03.log.cleaned", "05.log.swap"]
    assert report.left == 0
    assert sorted(path.name[20:] for path in people.glob("*.log.*")) == [".log.cleaned.txt"]


def test_internal_topics_that_were_set_aside_are_touched_only_by_name(people):
    aside = people.parent / "__consumer_offsets-0.0123456789abcdef0123456789abcdef-delete"
    shutil.copytree(people, aside)
    assert erase(people.parent, keys=[SECRET]).records == 2
    assert SECRET in all_bytes(aside)
    assert erase(people.parent, keys=[SECRET], topics=["__consumer_offsets"]).records == 2


def test_a_directory_that_cannot_be_read_is_told_and_there_is_no_proof(people, monkeypatch):
    locked = [people.parent / name for name in ("people-1", f"people-2.{'0' * 32}-stray", "others-0")]
    for directory in locked:
        shutil.copytree(people, directory)
    list_ = LocalStore.list

    def refuse(store, path):
        if Path(path) in locked:
            raise StorageError("permission denied", path=path)
        return list_(store, path)

    monkeypatch.setattr(LocalStore, "list", refuse)
    report = erase(people.parent, keys=[SECRET], topics=["people"])
    assert report.unread == tuple(f"{path}: permission denied" for path in locked[:2])
    assert not report.is_proof
    assert report.records == 2
    with pytest.raises(StorageError, match="others-0: permission denied"):
        erase(people.parent, keys=[SECRET], topics=["others"])
    for verb in (("compact", "--topics", "people", "--cleanup-policy", "compact"), ("repack", "--codec", "none")):
        answer = call(verb[0], people.parent, *verb[1:], "--dry-run")
        assert answer.status == 1
        assert f"failed: {locked[0]}: permission denied" in answer.text
        assert "stray" not in answer.text


def test_a_partition_that_was_refused_is_no_part_of_a_proof(people):
    assert not dataclasses.replace(erase(people, keys=[SECRET]), refusals=("people-0: broker 2 holds it too",)).is_proof
