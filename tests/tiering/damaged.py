"""A tier whose chunks can be damaged."""

from __future__ import annotations

import functools
import re

from Crypto.PublicKey import RSA

import kseg
from kseg.tiering.chunks import Transform
from kseg.tiering.crypto import SegmentCipher
from kseg.tiering.layout import ChunkedPart
from kseg.tiering.manifest import SegmentManifest
from tests.tiering.tiers import upload, write_log

CHUNK = 1000
WAYS = ["compressed", "encrypted", "both"]
REASON = re.compile("a compressed chunk (cannot be read|says)|encrypted bytes were changed")


@functools.cache
def _key():
    return RSA.generate(2048)


class DamagedTier:
    """A tier with three segments, whose chunks can be damaged."""

    def __init__(self, folder, way):
        self.partition = write_log(folder / "data", segments=4, value=b"v" * 40)
        self.root = folder / "tier"
        self.keys = {}
        cipher = wrapped = None
        if way != "compressed":
            key = _key()
            (folder / "public.pem").write_bytes(key.public_key().export_key())
            (folder / "private.pem").write_bytes(key.export_key(pkcs=8))
            (folder / "private.pem").chmod(0o600)
            self.keys = {"key1": folder / "private.pem"}
            cipher = SegmentCipher.random()
            wrapped = cipher.wrap("key1", folder / "public.pem")
        transform = Transform(way != "encrypted", cipher)
        self.names = upload(self.partition, self.root, transform=transform, encryption=wrapped, chunk_size=CHUNK)

    def path(self, segment, part):
        return self.root / self.names[segment].key(part)

    def damage(self, segment, *chunks):
        """Change bytes of chunks; return the place of the first in the object."""
        index = SegmentManifest.parse(self.path(segment, ChunkedPart.MANIFEST).read_bytes(), "").chunk_index
        data = bytearray(self.path(segment, ChunkedPart.LOG).read_bytes())
        for number in chunks:
            place = index.chunk(number)
            data[place.stored_position : place.stored_position + 4] = b"\0\0\0\0"
        self.path(segment, ChunkedPart.LOG).write_bytes(data)
        return index.chunk(chunks[0]).stored_position

    def open(self):
        return kseg.open_dir(self.root, keys=self.keys)["orders", 0]

    def offsets_without(self, segment, *chunks):
        """Of all batches that lie outside of the chunks, wholly."""
        lost = [range(number * CHUNK, (number + 1) * CHUNK) for number in chunks]
        kept = []
        for header in kseg.open_log(self.partition).batches(0, 300):
            place = range(header.position, header.position + header.size)
            is_lost = header.base_offset // 100 == segment and any(
                place.start < chunk.stop and chunk.start < place.stop for chunk in lost
            )
            kept += [] if is_lost else range(header.base_offset, header.last_offset + 1)
        return kept
