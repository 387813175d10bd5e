"""Loads, stores, copies and foreign calls on byte arrays: LLVM intrinsics, each with a plain twin for no-JIT runs.

All take `(array, position)`; none checks bounds: the caller has compared every length with the end of the buffer
before. Integers are big-endian, as in Kafka's files.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kseg.native._jit import JIT_ENABLED, inlined


def as_array(buffer: Any) -> NDArray[np.uint8]:
    """View any bytes-like object as a uint8 array, without a copy and of the one type that kernels are compiled for.

    numpy marks views of `bytes` read-only, which numba treats as another type; kernels never write to their input.
    """
    if (
        isinstance(buffer, np.ndarray)
        and buffer.dtype == np.uint8
        and buffer.flags.writeable
        and buffer.flags.c_contiguous
    ):
        return buffer
    held = pa.py_buffer(buffer)
    return _View(held).array() if held.size else np.empty(0, np.uint8)


def pooled(size: int) -> NDArray[np.uint8]:
    """Bytes out of Arrow's pool, not initialised: memory that was used before and given back costs no page faults."""
    return as_array(pa.allocate_buffer(size)) if size else np.empty(0, np.uint8)


class _View:
    def __init__(self, held: pa.Buffer) -> None:
        self._held = held  # keeps the memory alive as long as the array lives
        self.__array_interface__ = {
            "shape": (held.size,),
            "typestr": "|u1",
            "data": (held.address, False),
            "version": 3,
        }

    def array(self) -> NDArray[np.uint8]:
        return np.asarray(self)


if JIT_ENABLED:
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

    _I8, _I32, _I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)

    def _address(context: Any, builder: Any, array_type: Any, array: Any, position: Any) -> Any:
        data = context.make_array(array_type)(context, builder, array).data
        return builder.gep(data, [position])

    def make_load(bits: int, order: str = "big") -> Callable[..., Any]:
        """A load of so many bits: signed where big-endian, as Kafka's numbers are, else and of one byte unsigned."""

        @intrinsic
        def load(typing: Any, data: Any, position: Any) -> Any:
            def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                kind = ir.IntType(bits)
                pointer = builder.bitcast(
                    _address(context, builder, signature.args[0], args[0], args[1]), kind.as_pointer()
                )
                value = builder.load(pointer, align=1)
                if bits > 8 and sys.byteorder != order:
                    value = builder.bswap(value)
                if bits == 64:
                    return value
                return builder.zext(value, _I64) if bits == 8 or order == "little" else builder.sext(value, _I64)

            return types.int64(data, types.int64), codegen

        return load  # type: ignore[no-any-return]

    def make_store(bits: int, order: str = "big") -> Callable[..., Any]:
        """A store of the low bits of a number."""

        @intrinsic
        def store(typing: Any, data: Any, position: Any, value: Any) -> Any:
            def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                kind = ir.IntType(bits)
                pointer = builder.bitcast(
                    _address(context, builder, signature.args[0], args[0], args[1]), kind.as_pointer()
                )
                number = args[2] if bits == 64 else builder.trunc(args[2], kind)
                if bits > 8 and sys.byteorder != order:
                    number = builder.bswap(number)
                builder.store(number, pointer, align=1)
                return context.get_dummy_value()

            return types.void(data, types.int64, types.int64), codegen

        return store  # type: ignore[no-any-return]

    load_u8 = make_load(8)
    load_i16 = make_load(16)
    load_i32 = make_load(32)
    load_i64 = make_load(64)
    store_u8 = make_store(8)
    store_i16 = make_store(16)
    store_i32 = make_store(32)
    store_i64 = make_store(64)

    @intrinsic
    def load_u64_native(typing: Any, data: Any, position: Any) -> Any:
        """Eight bytes in the machine's order, for checksums and hashes."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = builder.bitcast(
                _address(context, builder, signature.args[0], args[0], args[1]), _I64.as_pointer()
            )
            return builder.load(pointer, align=1)

        return types.uint64(data, types.int64), codegen

    @intrinsic
    def prefetch_row(typing: Any, rows: Any, row: Any) -> Any:
        """Ask the processor to bring a row of a two-dimensional array into its cache; nothing waits for it."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            array_type = signature.args[0]
            array = context.make_array(array_type)(context, builder, args[0])
            stride = cgutils.unpack_tuple(builder, array.strides, array_type.ndim)[0]
            address = builder.gep(builder.bitcast(array.data, _I8.as_pointer()), [builder.mul(stride, args[1])])
            kind = ir.FunctionType(ir.VoidType(), [_I8.as_pointer(), _I32, _I32, _I32])
            function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
            # read or write: write; how soon it is needed again: 3 of 3; data and not code
            builder.call(function, [address, _I32(1), _I32(3), _I32(1)])
            return context.get_dummy_value()

        return types.void(rows, types.int64), codegen

    @intrinsic
    def prefetch_byte(typing: Any, data: Any, position: Any) -> Any:
        """Ask the processor to bring the line of a byte into its cache; nothing waits, and any position will do."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            address = _address(context, builder, signature.args[0], args[0], args[1])
            kind = ir.FunctionType(ir.VoidType(), [_I8.as_pointer(), _I32, _I32, _I32])
            function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
            builder.call(function, [address, _I32(0), _I32(3), _I32(1)])
            return context.get_dummy_value()

        return types.void(data, types.int64), codegen

    @inlined
    def wrap_i64(value: int) -> int:
        """Sums wrap around as Java's do; machine integers do so by themselves."""
        return value

    @intrinsic
    def copy_bytes(
        typing: Any, target: Any, target_position: Any, source: Any, source_position: Any, count: Any
    ) -> Any:
        """memcpy: the two ranges do not overlap."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            destination = _address(context, builder, signature.args[0], args[0], args[1])
            origin = _address(context, builder, signature.args[2], args[2], args[3])
            cgutils.raw_memcpy(builder, destination, origin, args[4], 1)
            return context.get_dummy_value()

        return types.void(target, types.int64, source, types.int64, types.int64), codegen

    @intrinsic
    def move_bytes(
        typing: Any, target: Any, target_position: Any, source: Any, source_position: Any, count: Any
    ) -> Any:
        """memmove: the two ranges may overlap."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            destination = _address(context, builder, signature.args[0], args[0], args[1])
            origin = _address(context, builder, signature.args[2], args[2], args[3])
            cgutils.raw_memmove(builder, destination, origin, args[4], 1)
            return context.get_dummy_value()

        return types.void(target, types.int64, source, types.int64, types.int64), codegen

    def _make_move(words: int) -> Callable[..., Any]:
        """Copy exactly 8 times so many bytes: one load, one store."""

        @intrinsic
        def move(typing: Any, target: Any, target_position: Any, source: Any, source_position: Any) -> Any:
            def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                kind = ir.VectorType(_I64, words).as_pointer()
                origin = builder.bitcast(_address(context, builder, signature.args[2], args[2], args[3]), kind)
                destination = builder.bitcast(_address(context, builder, signature.args[0], args[0], args[1]), kind)
                builder.store(builder.load(origin, align=1), destination, align=1)
                return context.get_dummy_value()

            return types.void(target, types.int64, source, types.int64), codegen

        return move  # type: ignore[no-any-return]

    move16 = _make_move(2)
    move32 = _make_move(4)

    @intrinsic
    def call_block(
        typing: Any,
        function: Any,
        source: Any,
        source_position: Any,
        size: Any,
        target: Any,
        target_position: Any,
        capacity: Any,
    ) -> Any:
        """function(source, target, size, capacity), as LZ4_decompress_safe: bytes written, or negative."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            byte_pointer = _I8.as_pointer()
            kind = ir.FunctionType(_I32, [byte_pointer, byte_pointer, _I32, _I32])
            pointer = builder.inttoptr(args[0], kind.as_pointer())
            origin = _address(context, builder, signature.args[1], args[1], args[2])
            destination = _address(context, builder, signature.args[4], args[4], args[5])
            got = builder.call(
                pointer, [origin, destination, builder.trunc(args[3], _I32), builder.trunc(args[6], _I32)]
            )
            return builder.sext(got, _I64)

        return types.int64(types.int64, source, types.int64, types.int64, target, types.int64, types.int64), codegen

    @intrinsic
    def call_pack(
        typing: Any,
        function: Any,
        source: Any,
        source_position: Any,
        size: Any,
        target: Any,
        target_position: Any,
        capacity: Any,
        level: Any,
    ) -> Any:
        """function(source, target, size, capacity, level), as LZ4_compress_fast: bytes written, or 0 or less."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            byte_pointer = _I8.as_pointer()
            kind = ir.FunctionType(_I32, [byte_pointer, byte_pointer, _I32, _I32, _I32])
            pointer = builder.inttoptr(args[0], kind.as_pointer())
            origin = _address(context, builder, signature.args[1], args[1], args[2])
            destination = _address(context, builder, signature.args[4], args[4], args[5])
            numbers = [builder.trunc(args[i], _I32) for i in (3, 6, 7)]
            return builder.sext(builder.call(pointer, [origin, destination, *numbers]), _I64)

        kinds = (types.int64, source, types.int64, types.int64, target, types.int64, types.int64, types.int64)
        return types.int64(*kinds), codegen

    @intrinsic
    def call_zstd(
        typing: Any,
        function: Any,
        state: Any,
        source: Any,
        source_position: Any,
        size: Any,
        target: Any,
        target_position: Any,
        capacity: Any,
    ) -> Any:
        """function(state, target, capacity, source, size), as zstd's: bytes written, or minus an error code."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            byte_pointer = _I8.as_pointer()
            kind = ir.FunctionType(_I64, [byte_pointer, byte_pointer, _I64, byte_pointer, _I64])
            pointer = builder.inttoptr(args[0], kind.as_pointer())
            context_pointer = builder.inttoptr(args[1], byte_pointer)
            origin = _address(context, builder, signature.args[2], args[2], args[3])
            destination = _address(context, builder, signature.args[5], args[5], args[6])
            return builder.call(pointer, [context_pointer, destination, args[7], origin, args[4]])

        kinds = (types.int64, types.int64, source, types.int64, types.int64, target, types.int64, types.int64)
        return types.int64(*kinds), codegen

else:

    def make_load(bits: int, order: str = "big") -> Callable[..., Any]:
        size, signed = bits // 8, bits == 64 or (order == "big" and bits > 8)

        def load(data: NDArray[np.uint8], position: int) -> int:
            return int.from_bytes(data[position : position + size].tobytes(), order, signed=signed)  # type: ignore[arg-type]

        return load

    def make_store(bits: int, order: str = "big") -> Callable[..., Any]:
        size = bits // 8

        def store(data: NDArray[np.uint8], position: int, value: int) -> None:
            wrapped = (int(value) % (1 << bits)).to_bytes(size, order)  # type: ignore[arg-type]
            data[position : position + size] = np.frombuffer(wrapped, np.uint8)

        return store

    load_u8 = make_load(8)
    load_i16 = make_load(16)
    load_i32 = make_load(32)
    load_i64 = make_load(64)
    store_u8 = make_store(8)
    store_i16 = make_store(16)
    store_i32 = make_store(32)
    store_i64 = make_store(64)

    def load_u64_native(data: NDArray[np.uint8], position: int) -> np.uint64:
        return np.uint64(int.from_bytes(data[position : position + 8].tobytes(), sys.byteorder))

    def prefetch_row(rows: NDArray[Any], row: int) -> None:
        pass

    def prefetch_byte(data: NDArray[np.uint8], position: int) -> None:
        pass

    def wrap_i64(value: int) -> int:
        return (int(value) + (1 << 63)) % (1 << 64) - (1 << 63)

    def copy_bytes(
        target: NDArray[np.uint8], target_position: int, source: NDArray[np.uint8], source_position: int, count: int
    ) -> None:
        target[target_position : target_position + count] = source[source_position : source_position + count]

    def move_bytes(
        target: NDArray[np.uint8], target_position: int, source: NDArray[np.uint8], source_position: int, count: int
    ) -> None:
        target[target_position : target_position + count] = source[source_position : source_position + count].copy()

    def _make_move(words: int) -> Callable[..., Any]:
        """Copy exactly 8 times so many bytes: one load, one store."""

        def move(
            target: NDArray[np.uint8], target_position: int, source: NDArray[np.uint8], source_position: int
        ) -> None:
            move_bytes(target, target_position, source, source_position, 8 * words)

        return move

    move16 = _make_move(2)
    move32 = _make_move(4)

    def call_block(
        function: int,
        source: NDArray[np.uint8],
        source_position: int,
        size: int,
        target: NDArray[np.uint8],
        target_position: int,
        capacity: int,
    ) -> int:
        call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int)(
            int(function)
        )
        origin, destination = source.ctypes.data + int(source_position), target.ctypes.data + int(target_position)
        return int(call(origin, destination, int(size), int(capacity)))

    def call_pack(
        function: int,
        source: NDArray[np.uint8],
        source_position: int,
        size: int,
        target: NDArray[np.uint8],
        target_position: int,
        capacity: int,
        level: int,
    ) -> int:
        kinds = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int)
        call = ctypes.CFUNCTYPE(ctypes.c_int, *kinds)(int(function))
        origin, destination = source.ctypes.data + int(source_position), target.ctypes.data + int(target_position)
        return int(call(origin, destination, int(size), int(capacity), int(level)))

    def call_zstd(
        function: int,
        state: int,
        source: NDArray[np.uint8],
        source_position: int,
        size: int,
        target: NDArray[np.uint8],
        target_position: int,
        capacity: int,
    ) -> int:
        kinds = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t)
        call = ctypes.CFUNCTYPE(ctypes.c_ssize_t, *kinds)(int(function))
        origin, destination = source.ctypes.data + int(source_position), target.ctypes.data + int(target_position)
        return int(call(int(state), destination, int(capacity), origin, int(size)))
