"""Split a segment whose offsets are too far from its base for its indexes, as a broker does when it starts.

Brokers before Kafka 2.0 could make such segments when they compacted. Each new segment is named for its first batch.
"""

from __future__ import annotations

from kseg.index.build import IndexBuilder, Stop
from kseg.log.names import FileKind, segment_file_name
from kseg.native import table as t
from kseg.recovery.folder import Content
from kseg.recovery.recover_segment import OffsetOverflowError, refused

_MAX_RELATIVE = 0x7FFFFFFF


def plan_split(overflow: OffsetOverflowError, interval_bytes: int) -> list[int]:
    """Replace the segment by new ones in its folder; return their base offsets.

    Raises:
        LogError: It is damage and no overflow: the log's last batch is within reach, or its end is torn.
    """
    segment = overflow.segment
    if segment.next_offset() - 1 - segment.base_offset <= _MAX_RELATIVE:
        raise refused(overflow)
    folder, content, total = segment.folder, segment.folder.files[segment.log_name], segment.size
    made: list[tuple[int, Content, IndexBuilder]] = []
    builder: IndexBuilder | None = None
    start = 0
    for chunk in segment.walk():
        row = 0
        while row < chunk.rows:
            if builder is None:
                builder = IndexBuilder(int(chunk.table[t.BASE_OFFSET, row]), interval_bytes)
            taken, stop = builder.add_until_roll(chunk.table, chunk.rows - row, None, first_row=row)
            row += taken
            if stop is Stop.NONE:
                continue
            if stop is not Stop.OFFSET_RANGE or not builder.size:
                raise refused(overflow)
            made.append((builder.base_offset, content.slice(start, start + builder.size), builder))
            start += builder.size
            builder = None
    if builder is not None:
        made.append((builder.base_offset, content.slice(start, start + builder.size), builder))
        start += builder.size
    if start != total:
        raise refused(overflow)
    for kind in (FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX):
        folder.remove(segment.base_offset, kind)
    for base, log, built in made:
        built.finish()
        folder.files[segment_file_name(base, FileKind.LOG)] = log
        folder.put(base, FileKind.OFFSET_INDEX, built.offset_index.to_bytes())
        folder.put(base, FileKind.TIME_INDEX, built.time_index.to_bytes())
    return [base for base, _, _ in made]
