"""The snappy encoder, slow and obvious: elements first, bytes then."""

from __future__ import annotations

TABLE_BITS = 14
MARGIN = 15
Element = bytes | tuple[int, int]  # a literal, or a copy: how far back, and how many bytes


def compress(data: bytes) -> bytes:
    """One raw block of at most 64 KiB."""
    return _length(len(data)) + b"".join(
        _literal(element) if isinstance(element, bytes) else _copy(*element) for element in elements(data)
    )


def elements(data: bytes) -> list[Element]:
    """What the greedy search finds: the last place with the same hash of four bytes is the only candidate."""
    bits = min(max(8, (len(data) - 1).bit_length()), TABLE_BITS)
    last_seen: dict[int, int] = {}
    found: list[Element] = []
    done, here, tried = 0, 1, 32
    while here < len(data) - MARGIN:
        candidate = _replace(last_seen, data, here, bits)
        if data[candidate : candidate + 4] != data[here : here + 4]:
            here += max(tried >> 5, 1)
            tried += 1
            continue
        if done < here:
            found.append(data[done:here])
        size = 4
        while here + size < len(data) and data[candidate + size] == data[here + size]:
            size += 1
        found.append((here - candidate, size))
        done = here = here + size
        if here < len(data) - MARGIN:
            _replace(last_seen, data, here - 1, bits)
        tried = 31  # the byte right behind a copy is tried, and then counting starts
    if done < len(data):
        found.append(data[done:])
    return found


def _replace(last_seen: dict[int, int], data: bytes, here: int, bits: int) -> int:
    word = int.from_bytes(data[here : here + 4], "little")
    slot = (word * 0x1E35A7BD) % (1 << 32) >> (32 - bits)
    before = last_seen.get(slot, 0)
    last_seen[slot] = here
    return before


def _length(size: int) -> bytes:
    out = bytearray()
    while size > 127:
        out.append(size % 128 + 128)
        size //= 128
    return bytes([*out, size])


def _literal(data: bytes) -> bytes:
    size = len(data) - 1
    if size < 60:
        return bytes([size << 2]) + data
    wide = (size.bit_length() + 7) // 8
    return bytes([(59 + wide) << 2]) + size.to_bytes(wide, "little") + data


def _copy(back: int, size: int) -> bytes:
    out = b""
    while size > 64:
        part = 64 if size >= 68 else 60
        out += bytes([2 | (part - 1) << 2]) + back.to_bytes(2, "little")
        size -= part
    if size < 12 and back < 2048:
        return out + bytes([1 | (size - 4) << 2 | back >> 8 << 5, back & 255])
    return out + bytes([2 | (size - 1) << 2]) + back.to_bytes(2, "little")
