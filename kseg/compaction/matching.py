"""Which records are to be erased: those with one of some keys, or those that a function of the caller's names."""

from __future__ import annotations

import base64
import binascii
import codecs
import hashlib
import hmac
import os
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Protocol, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kseg.compaction.decode import EVERYTHING, Run
from kseg.compaction.keymap import KeyMap, has_key, key_hashes, new_hash_key, slots_for
from kseg.errors import OptionError
from kseg.format.arrow import RecordDecoder
from kseg.native.hash import fill_hash128
from kseg.os_errors import storage_errors
from kseg.schema import select_columns

KeyFormat = Literal["utf8", "hex", "base64"]
Predicate = Callable[[pa.RecordBatch], Any]
PREDICATE_COLUMNS: Final = ("key", "value", "headers")


class Matcher(Protocol):
    """Finds records; one object per thread."""

    def matches(self, run: Run, skip: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which records of a run are meant; `skip` is what the run was decoded with."""


class Search(Protocol):
    """What to look for; can be pickled by Spark."""

    def matcher(self) -> Matcher:
        """What a thread or task looks with."""


@dataclass(frozen=True, slots=True, eq=False)
class KeySearch:
    """Looks for keys by their 128-bit hash, keyed at random: the keys themselves are not in it."""

    hashes: NDArray[np.int64]
    hash_key: NDArray[np.uint64]

    @classmethod
    def of(cls, keys: pa.Array) -> KeySearch:
        """Hash some keys."""
        joined = pa.concat_arrays([keys.cast(pa.large_binary()), pa.array([], pa.large_binary())])
        offsets = np.frombuffer(joined.buffers()[1], np.int64)[: len(joined) + 1]
        data = np.frombuffer(joined.buffers()[2] or b"\0", np.uint8).copy()
        hash_key = new_hash_key()
        out = np.empty((len(joined), 2), np.uint64)
        fill_hash128(data, offsets[:-1].copy(), np.diff(offsets), len(joined), hash_key, out)
        return cls(out.view(np.int64), hash_key)

    def matcher(self) -> KeyMatcher:
        """What a thread or task looks with."""
        return KeyMatcher(self)


class KeyMatcher:
    """Finds records by their keys."""

    def __init__(self, search: KeySearch) -> None:
        self._keys = KeyMap(slots_for(len(search.hashes)), search.hash_key)
        self._keys.put(np.column_stack([search.hashes, np.zeros(len(search.hashes), np.int64)]))

    def matches(self, run: Run, skip: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which records of a run have one of the keys."""
        known = self._keys.latest(key_hashes(run, self._keys.hash_key), has_key(run)) >= 0
        found: NDArray[np.bool_] = known
        return found


@dataclass(frozen=True, slots=True)
class PredicateSearch:
    """Looks with a function that gets batches of key, value and headers and says which rows are meant."""

    predicate: Predicate

    def matcher(self) -> PredicateMatcher:
        """What a thread or task looks with."""
        return PredicateMatcher(self.predicate)


class PredicateMatcher:
    """Finds records by the caller's function."""

    def __init__(self, predicate: Predicate) -> None:
        self._predicate = predicate
        self._decoder = RecordDecoder(select_columns(PREDICATE_COLUMNS), topic="", partition=0)

    def matches(self, run: Run, skip: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which records of a run the function names.

        Raises:
            OptionError: It fails, or does not answer with a truth value, or null, for each row.
        """
        chunk = run.chunk
        found = [np.empty(0, np.bool_)]
        batches = self._decoder.decode(chunk.data, chunk.file_position, chunk.table, run.rows, skip, *EVERYTHING)
        for batch in batches:
            try:
                answer = self._predicate(batch)
            except Exception as error:  # it is the caller's, and its text may tell a record
                raise OptionError(f"the predicate failed with {type(error).__name__}") from error
            mask = _truth_values(answer)
            if mask is None or len(mask) != batch.num_rows:
                given = (
                    f"other things than truth values ({type(answer).__name__})"
                    if mask is None
                    else f"{len(mask)} truth values"
                )
                raise OptionError(
                    f"the predicate gave {given} for a batch of {batch.num_rows} rows",
                    hint="it has to give one truth value for each row: true, false, or null, which means no",
                )
            found.append(mask)
        return np.concatenate(found)


def _truth_values(answer: Any) -> NDArray[np.bool_] | None:
    """What a predicate said, null of any kind taken for no; None where something else than booleans is in it."""
    if not hasattr(answer, "__len__") or isinstance(answer, Mapping | Set):  # these have no order
        return None
    try:
        found = pa.array(answer, from_pandas=True)  # which knows NaN, NaT and NA for null, and no number for a boolean
    except (pa.ArrowException, TypeError, ValueError, LookupError):
        return None
    if found.null_count == len(found):
        return np.zeros(len(found), np.bool_)
    if not pa.types.is_boolean(found.type):
        return None
    mask: NDArray[np.bool_] = np.asarray(found.fill_null(False))
    return mask


def read_keys(path: str | os.PathLike[str], key_format: KeyFormat = "utf8") -> pa.Array:
    """Keys of a file, one a line, as text, hex or base64; empty lines are passed over.

    Raises:
        OptionError: A line cannot be read as the format says, or there is no key.
    """
    if key_format not in get_args(KeyFormat):
        raise OptionError(f"the format of keys must be utf8, hex or base64, got {key_format!r}")
    with storage_errors(path):
        lines = Path(path).read_bytes().removeprefix(codecs.BOM_UTF8).splitlines()
    keys = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                keys.append(_decoded(line, key_format))
            except (ValueError, binascii.Error):
                raise OptionError(f"line {number} of {os.fspath(path)} is not {key_format}") from None
    if not keys:
        raise OptionError(f"{os.fspath(path)} holds no key")
    return pa.array(keys, pa.binary())


def _decoded(line: bytes, key_format: KeyFormat) -> bytes:
    if key_format == "hex":
        return binascii.unhexlify(line.strip())
    if key_format == "base64":
        return base64.b64decode(line.strip(), validate=True)
    return line.decode().encode()


def as_keys(keys: Any) -> pa.Array:
    """Keys from whatever holds them: bytes and texts, an Arrow array, a column of a table or of a DataFrame.

    Raises:
        OptionError: There is no column of keys, or no key, or one is null or no bytes or text.
    """
    if isinstance(keys, str | bytes | os.PathLike):
        raise OptionError("keys is a collection of keys", hint="read a file with kseg.compaction.read_keys")
    if hasattr(keys, "toArrow"):  # a Spark DataFrame
        keys = keys.select(_key_column(keys.columns)).toArrow()
    elif hasattr(keys, "columns") and hasattr(keys, "__arrow_c_stream__"):  # one of pandas or Polars
        keys = pa.table(keys)
    if isinstance(keys, pa.Table | pa.RecordBatch):
        keys = keys.column(_key_column(keys.schema.names))
    if isinstance(keys, pa.ChunkedArray):
        keys = keys.combine_chunks()
    if not isinstance(keys, pa.Array):
        keys = pa.array([_as_bytes(key) for key in _iterated(keys)], pa.binary())
    if keys.null_count:
        raise OptionError("a key to erase is null", hint="records without a key are found by a predicate")
    if not len(keys):
        raise OptionError("there is no key to erase")
    try:
        return keys.cast(pa.binary())
    except pa.ArrowException:
        raise OptionError(f"a key is bytes or text, got {keys.type}") from None


def _key_column(names: Sequence[str]) -> str:
    if "key" in names or len(names) == 1:
        return "key" if "key" in names else names[0]
    raise OptionError(f"no column key among {', '.join(names) or 'none'}", hint="keys are in the column of that name")


def _iterated(keys: Any) -> Iterable[Any]:
    if not isinstance(keys, Iterable) or isinstance(keys, Mapping) or hasattr(keys, "columns"):  # these give names
        raise OptionError(f"keys must be a collection of keys, got {type(keys).__name__}")
    return keys


def _as_bytes(key: Any) -> bytes:
    if isinstance(key, str):
        try:
            return key.encode()
        except UnicodeEncodeError:  # which holds the key
            raise OptionError("a key is a text that is no Unicode", hint="give it as bytes") from None
    if isinstance(key, bytes | bytearray | memoryview):
        return bytes(key)
    raise OptionError(f"a key is bytes or text, got {type(key).__name__}")


def hashed_keys(keys: pa.Array, secret: bytes) -> tuple[str, ...]:
    """Keys as a report may show them: HMAC-SHA256 under a secret, so that nobody can check a guess."""
    return tuple(hmac.new(secret, key, hashlib.sha256).hexdigest()[:32] for key in keys.to_pylist())
