"""The batch table: one row per batch, one column per header field, as a plain int64 array.

`table[COLUMN, row]`, so that each column is contiguous. Kernels fill a table that the caller owns and reuses;
`new_table` makes one. Legacy (magic 0 and 1) entries are rows too: what they do not have is -1.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Table = NDArray[np.int64]
Bytes = NDArray[np.uint8]

POSITION: Final = 0  # byte position of the batch in its file
SIZE: Final = 1  # bytes of the whole batch, its 12-byte prefix included
BASE_OFFSET: Final = 2  # -1 for a legacy wrapper until its content was decompressed
LAST_OFFSET: Final = 3
LEADER_EPOCH: Final = 4
MAGIC: Final = 5
CRC: Final = 6  # as stored, unsigned
ATTRIBUTES: Final = 7  # all 16 bits of magic 2 (sign bit included as a positive number), 8 bits of legacy
BASE_TIMESTAMP: Final = 8  # the delete horizon where bit 6 of the attributes is set
MAX_TIMESTAMP: Final = 9
PRODUCER_ID: Final = 10
PRODUCER_EPOCH: Final = 11
BASE_SEQUENCE: Final = 12
COUNT: Final = 13  # -1 for a legacy wrapper until its content was decompressed
MARKER_TYPE: Final = 14  # of a control batch's first record: 0 ABORT, 1 COMMIT, 2.. KRaft; -1: there is none
COORDINATOR_EPOCH: Final = 15  # of a transaction marker, else -1
MARKER_TIMESTAMP: Final = 16  # of a control batch's first record, else -1
COLUMNS: Final = 17

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

LOG_OVERHEAD: Final = 12  # base offset and length: what `length` does not count
PREFIX_SIZE: Final = 17  # up to and with the magic byte, equal in all formats
HEADER_SIZE: Final = 61  # of a magic 2 batch
LEGACY_MIN_LENGTH: Final = 14  # the smallest `length` that any format allows
LEGACY_V0_OVERHEAD: Final = 14
LEGACY_V1_OVERHEAD: Final = 22
CRC_START: Final = 21  # the CRC-32C of magic 2 covers [21, end)
LEGACY_CRC_START: Final = 16  # the CRC-32 of magic 0 and 1 covers [16, end)
MIN_RECORD_SIZE: Final = 7  # seven one-byte fields: no record of magic 2 is smaller


def new_table(capacity: int) -> Table:
    """Make an empty table for `capacity` batches; it is not initialised."""
    return np.empty((COLUMNS, capacity), np.int64)
