"""The one place that knows numba's flags, the kernel cache, and the switch that turns the JIT off.

Kernels compile on first use and are cached on disk. numba's own cache refuses a folder that it cannot write to,
raises when a save fails or a file is torn, and does not notice that a *called* kernel in another file changed;
`_KernelCache` mends the four: a read-only folder that someone filled is used, a failed save is passed over, a file that
a crash has cut is made anew, and the stamp covers every file of this package.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile, _CacheLocator
from numba.core.codegen import get_host_cpu_features

Kernel = TypeVar("Kernel", bound=Callable[..., Any])

JIT_ENABLED = not numba.config.DISABLE_JIT


@functools.cache
def target_features() -> frozenset[str]:
    """Features of the CPU that kernels are compiled for, as LLVM names them; none without the JIT."""
    if not JIT_ENABLED:
        return frozenset()
    chosen = numba.config.CPU_FEATURES
    listed = get_host_cpu_features() if chosen is None else chosen
    return frozenset(name[1:] for name in listed.split(",") if name.startswith("+"))


def cache_dir() -> Path | None:
    """Folder of compiled kernels: KSEG_CACHE_DIR, else NUMBA_CACHE_DIR, else the user's cache folder.

    None where the user has no home, as in containers that run under any number.
    """
    chosen = os.environ.get("KSEG_CACHE_DIR")
    if chosen:
        return Path(chosen) / "kernels"
    if numba.config.CACHE_DIR:
        return Path(numba.config.CACHE_DIR) / "kseg"
    user = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(user) if user else Path.home() / ".cache") / "kseg" / "kernels"
    except RuntimeError:
        return None


@functools.cache
def _source_stamp() -> str:
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


class _Locator(_CacheLocator):  # type: ignore[misc]
    def __init__(self, py_func: Callable[..., Any]) -> None:
        self._line = py_func.__code__.co_firstlineno

    def get_cache_path(self) -> str:
        return str((cache_dir() or Path()) / _source_stamp()[:16])

    def get_source_stamp(self) -> str:
        return _source_stamp()

    def get_disambiguator(self) -> str:
        return str(self._line)

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> _Locator:
        return cls(py_func)


class _CacheImpl(CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = (_Locator,)


class _CacheFile(IndexDataCacheFile):  # type: ignore[misc]
    """numba's files, each with a digest in front: one that a crash has cut, or zeros in it, counts as missing."""

    def _load_index(self) -> dict[Any, str]:
        try:
            version, stamp, overloads = _read_sealed(self._index_path)
        except (FileNotFoundError, _TornError):
            return {}
        return overloads if (version, stamp) == (self._version, self._source_stamp) else {}

    def _save_index(self, overloads: dict[Any, str]) -> None:
        self._write_sealed(self._index_path, (self._version, self._source_stamp, overloads))

    def _load_data(self, name: str) -> Any:
        return _read_sealed(self._data_path(name))

    def _save_data(self, name: str, data: Any) -> None:
        self._write_sealed(self._data_path(name), data)

    def _write_sealed(self, path: str, content: Any) -> None:
        data = self._dump(content)
        with self._open_for_write(path) as file:
            file.write(hashlib.sha256(data).digest() + data)


class _TornError(OSError):  # numba takes that for a file that is missing
    pass


def _read_sealed(path: str) -> Any:
    content = Path(path).read_bytes()
    digest, data = content[: hashlib.sha256().digest_size], content[hashlib.sha256().digest_size :]
    if hashlib.sha256(data).digest() != digest:
        raise _TornError(path)
    return pickle.loads(data)


class _KernelCache(FunctionCache):  # type: ignore[misc]
    _impl_class = _CacheImpl

    def __init__(self, py_func: Callable[..., Any]) -> None:
        super().__init__(py_func)
        self._cache_file = _CacheFile(self._cache_path, self._impl.filename_base, _source_stamp())

    @contextlib.contextmanager
    def _guard_against_spurious_io_errors(self) -> Iterator[None]:
        with contextlib.suppress(OSError):  # a cache that cannot be read or written costs time, never a result
            yield


# Kernels allocate nothing, so numba's reference counting (two atomic operations for each array that is handed on) is
# off.
_FLAGS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "boundscheck": False, "_nrt": False}


def kernel(function: Kernel) -> Kernel:
    """Compile on first call, without the GIL, cached on disk; with NUMBA_DISABLE_JIT=1 the plain function."""
    if not JIT_ENABLED:
        return function
    compiled = numba.njit(**_FLAGS)(function)
    if cache_dir() is not None:
        compiled._cache = _KernelCache(function)
    return compiled  # type: ignore[no-any-return]


def inlined(function: Kernel) -> Kernel:
    """A small piece of a kernel: compiled into its callers, so it needs no cache of its own."""
    if not JIT_ENABLED:
        return function
    return numba.njit(forceinline=True, **_FLAGS)(function)  # type: ignore[no-any-return]


if JIT_ENABLED:
    from numba import types
    from numba.extending import intrinsic

    @intrinsic
    def stay_apart(typing: Any) -> Any:
        """Called by a kernel that is not to be compiled into its callers: its loop has the CPU's registers alone."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            builder.function.attributes.discard("alwaysinline")  # inherited where an inlined function calls it
            builder.function.attributes.add("noinline")
            return context.get_dummy_value()

        return types.void(), codegen

else:

    def stay_apart() -> None:
        """Nothing to do."""
