"""The outputs of one record batch in one piece of memory, so that it costs one allocation and few arguments.

Where records are decoded at the speed of memory, what Python does for each record batch is seen: its own code and data
have left the CPU's cache meanwhile.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from kseg.native._jit import inlined

# entries of the int64 array `layout`
ROOM: Final = 0  # rows that every output has room for
UNIT: Final = 1  # that timestamps are multiplied by
LARGEST: Final = 2  # timestamp that may be
STARTS: Final = 3  # of the outputs in the block, in the order below, and where the last one ends
LAYOUT: Final = 12

# the outputs; one that is not wanted has no bytes
OFFSETS: Final = 0
TIMESTAMPS: Final = 1
KEY_OFFSETS: Final = 2
KEY_BITMAP: Final = 3
KEYS: Final = 4
VALUE_OFFSETS: Final = 5
VALUE_BITMAP: Final = 6
VALUES: Final = 7
OUTPUTS: Final = 8


def split_block(block: Any, layout: Any) -> tuple[Any, Any, Any, Any, Any, Any, Any, Any]:
    """The outputs as arrays: (offsets, timestamps, key offsets, keys, key bitmap, and the same of values).

    An output ends where the next one starts: the few bytes between them that align them count to the first.
    """
    return (
        block[layout[STARTS + OFFSETS] : layout[STARTS + OFFSETS + 1]].view(np.int64),
        block[layout[STARTS + TIMESTAMPS] : layout[STARTS + TIMESTAMPS + 1]].view(np.int64),
        block[layout[STARTS + KEY_OFFSETS] : layout[STARTS + KEY_OFFSETS + 1]].view(np.int32),
        block[layout[STARTS + KEYS] : layout[STARTS + KEYS + 1]],
        block[layout[STARTS + KEY_BITMAP] : layout[STARTS + KEY_BITMAP + 1]],
        block[layout[STARTS + VALUE_OFFSETS] : layout[STARTS + VALUE_OFFSETS + 1]].view(np.int32),
        block[layout[STARTS + VALUES] : layout[STARTS + VALUES + 1]],
        block[layout[STARTS + VALUE_BITMAP] : layout[STARTS + VALUE_BITMAP + 1]],
    )


inlined_split_block = inlined(split_block)
