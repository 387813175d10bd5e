"""The one place that knows numba's flags, the kernel cache, and the switch that turns the JIT off.

Kernels compile on first use and are cached on disk. numba's own cache refuses a folder that it cannot write to,
raises when a save fails, and does not notice that a *called* kernel in another file changed; `_KernelCache` mends the
three: a read-only folder that someone filled is used, a failed save is passed over, and the stamp covers every file
of this package.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator
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


def cache_dir() -> Path:
    """Folder of compiled kernels: KSEG_CACHE_DIR, else NUMBA_CACHE_DIR, else the user's cache folder."""
    chosen = os.environ.get("KSEG_CACHE_DIR")
    if chosen:
        return Path(chosen) / "kernels"
    if numba.config.CACHE_DIR:
        return Path(numba.config.CACHE_DIR) / "kseg"
    user = os.environ.get("XDG_CACHE_HOME")
    return (Path(user) if user else Path("~/.cache").expanduser()) / "kseg" / "kernels"


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
        return str(cache_dir() / _source_stamp()[:16])

    def get_source_stamp(self) -> str:
        return _source_stamp()

    def get_disambiguator(self) -> str:
        return str(self._line)

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> _Locator:
        return cls(py_func)


class _CacheImpl(CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = (_Locator,)


class _KernelCache(FunctionCache):  # type: ignore[misc]
    _impl_class = _CacheImpl

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
    compiled._cache = _KernelCache(function)
    return compiled  # type: ignore[no-any-return]


def inlined(function: Kernel) -> Kernel:
    """A small piece of a kernel: compiled into its callers, so it needs no cache of its own."""
    if not JIT_ENABLED:
        return function
    return numba.njit(forceinline=True, **_FLAGS)(function)  # type: ignore[no-any-return]
