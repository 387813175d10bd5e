"""Keys of encrypted segments: AES-256-GCM for data, its keys wrapped with RSA.

Each segment has a random data key and 32 random bytes of additional data, used for all its chunks and indexes. What is
encrypted is stored as IV (12 bytes), ciphertext, tag (16). The data key is wrapped with RSA-OAEP, SHA3-512 also for the
mask; the manifest names the key pair by its id.

Key files are PEM: a private key in PKCS#8, a public one as X.509 SubjectPublicKeyInfo. Key material stays in this
module's objects: it is in no repr, no error and no pickle; a pickled key ring holds paths and reads them again.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kseg.errors import CorruptRecordError, OptionError
from kseg.os_errors import storage_errors
from kseg.storage import checked_path
from kseg.tiering.manifest import EncryptionMetadata

IV_BYTES: Final = 12
TAG_BYTES: Final = 16
OVERHEAD: Final = IV_BYTES + TAG_BYTES
DATA_KEY_BYTES: Final = 32
AAD_BYTES: Final = 32
MAX_KEY_FILE_BYTES: Final = 1 << 20

KeyFiles = Mapping[str, str | os.PathLike[str]]


@dataclass(frozen=True, slots=True)
class SegmentCipher:
    """Encrypts and decrypts the parts of one segment."""

    _key: bytes = field(repr=False)
    aad: bytes = field(repr=False)

    @classmethod
    def random(cls) -> SegmentCipher:
        """A cipher for a new segment."""
        return cls(secrets.token_bytes(DATA_KEY_BYTES), secrets.token_bytes(AAD_BYTES))

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a cipher holds a secret and is not pickled")

    def encrypt(self, data: bytes | memoryview) -> bytes:
        """IV, ciphertext and tag, with a new random IV."""
        iv = secrets.token_bytes(IV_BYTES)
        ciphertext, tag = self._new(iv).encrypt_and_digest(data)
        return b"".join((iv, ciphertext, tag))

    def decrypt(self, data: bytes | memoryview) -> bytes:
        """The plain bytes of what `encrypt` gave.

        Raises:
            CorruptRecordError: The bytes were changed, or are not this segment's.
        """
        view = memoryview(data)
        if len(view) < OVERHEAD:
            raise CorruptRecordError(f"{len(view)} bytes are too few for something encrypted")
        try:
            plain: bytes = self._new(bytes(view[:IV_BYTES])).decrypt_and_verify(
                view[IV_BYTES:-TAG_BYTES], bytes(view[-TAG_BYTES:])
            )
        except ValueError:
            raise CorruptRecordError("encrypted bytes were changed, or belong to another segment") from None
        return plain

    def _new(self, iv: bytes) -> Any:
        from Crypto.Cipher import AES

        cipher = AES.new(self._key, AES.MODE_GCM, nonce=iv, mac_len=TAG_BYTES)
        cipher.update(self.aad)
        return cipher

    def wrap(self, key_id: str, public_key_file: str | os.PathLike[str]) -> EncryptionMetadata:
        """The data key, wrapped with a public key, for the manifest."""
        path = os.fspath(public_key_file)
        return self._wrapped(key_id, _import_key(read_key_file(path, allow_shared=True), path), path)

    def _wrapped(self, key_id: str, key: Any, path: str) -> EncryptionMetadata:
        try:
            wrapped = _oaep(key).encrypt(self._key)
        except ValueError:
            raise OptionError("the RSA key is too short; use 2048 bits or more", path=path) from None
        return EncryptionMetadata(key_id, wrapped, self.aad)


class KeyRing:
    """Private keys by id, read from their files when they are first needed.

    Args:
        files: Key id to private key file, such as `{"key1": "private.pem"}`.
        allow_shared: Take key files that others than their owner can read.
    """

    def __init__(self, files: KeyFiles | None = None, *, allow_shared: bool = False) -> None:
        if files is not None and not isinstance(files, Mapping):
            raise OptionError(f"keys are private key files by their ids, {{'key1': 'private.pem'}}, not {files!r}")
        self.files = {key_id: checked_path(path) for key_id, path in (files or {}).items()}
        self.allow_shared = allow_shared
        self._keys: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"KeyRing({self.files!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _new_ring, (self.files, self.allow_shared)

    def unwrap(self, metadata: EncryptionMetadata, path: str | None = None) -> SegmentCipher:
        """The cipher of a segment; `path` is the manifest, for errors.

        Raises:
            OptionError: The key that is needed was not given, or does not fit.
        """
        if metadata.key_id not in self.files:
            known = ", ".join(sorted(self.files)) or "none"
            raise OptionError(
                f"the segment is encrypted with key {metadata.key_id!r}; keys given: {known}",
                path=path,
                hint="give its private key file: keys={id: file}, remoteKeys or --remote-keys",
            )
        key, file = self._private(metadata.key_id)
        try:
            data_key = _oaep(key).decrypt(metadata.wrapped_key)
        except (ValueError, TypeError):
            data_key = b""
        if len(data_key) != DATA_KEY_BYTES:
            raise OptionError(
                f"the private key for {metadata.key_id!r} does not unwrap the segment's data key",
                path=path,
                hint=f"{file} may be another pair's key",
            )
        return SegmentCipher(data_key, metadata.aad)

    def wrap(self, cipher: SegmentCipher, key_id: str) -> EncryptionMetadata:
        """A segment's data key, wrapped with the public half of a key pair.

        The private half has to be here: with a public key alone nobody could prove that what was wrapped can be
        unwrapped again.

        Raises:
            OptionError: There is no such key, or it is no private one.
        """
        if key_id not in self.files:
            known = ", ".join(sorted(self.files)) or "none"
            raise OptionError(f"no key {key_id!r} was given; keys given: {known}")
        key, file = self._private(key_id, "a public key alone could not prove that what it wraps can be unwrapped")
        return cipher._wrapped(key_id, key, file)

    def _private(self, key_id: str, hint: str | None = None) -> tuple[Any, str]:
        """A private key and its file."""
        file = self.files[key_id]
        key = self._keys.get(key_id)
        if key is None:
            key = self._keys[key_id] = _import_key(read_key_file(file, allow_shared=self.allow_shared), file)
        if not key.has_private():
            raise OptionError(f"key {key_id!r} must be a private key, this is a public one", path=file, hint=hint)
        return key, file


def _new_ring(files: dict[str, str], allow_shared: bool) -> KeyRing:
    return KeyRing(files, allow_shared=allow_shared)


def read_key_file(path: str | os.PathLike[str], *, allow_shared: bool = False) -> bytes:
    """A key file's bytes.

    Raises:
        OptionError: Others than the owner can read it, and that was not allowed.
        StorageError: It cannot be read.
    """
    text = os.fspath(path)
    with storage_errors(text), Path(text).open("rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        if not stat.S_ISREG(mode):
            raise OptionError("a key file must be a plain file", path=text)
        if mode & 0o077 and not allow_shared:
            raise OptionError(
                f"others than its owner can read the key file (mode {mode & 0o777:04o})",
                path=text,
                hint="chmod 600 it, or allow this: allow_shared_keys, allowSharedKeys, --allow-shared-keys",
            )
        return file.read(MAX_KEY_FILE_BYTES)


def _import_key(data: bytes, path: str) -> Any:
    try:
        from Crypto.PublicKey import RSA
    except ImportError:
        raise OptionError("encrypted segments need pycryptodome", hint="pip install 'kseg[tiering]'") from None
    try:
        return RSA.import_key(data)
    except (ValueError, IndexError, TypeError):
        raise OptionError("not an RSA key in PEM", path=path) from None


def _oaep(key: Any) -> Any:
    from Crypto.Cipher import PKCS1_OAEP
    from Crypto.Hash import SHA3_512

    return PKCS1_OAEP.new(key, hashAlgo=SHA3_512)  # its mask generation uses the same hash
