"""The passes of a round in threads of this process."""

from __future__ import annotations

import collections
import os
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kseg.compaction import sweep
from kseg.compaction.config import Strategy
from kseg.compaction.decode import Run
from kseg.compaction.keymap import KeptOffsets, KeyMap, KeyMapFull, clear_slots, largest_map, new_hash_key
from kseg.compaction.lanes import Means
from kseg.compaction.markers import TransactionRows
from kseg.compaction.pieces import Piece
from kseg.compaction.rewrite import LatestOffsets, Rewritten, Rules
from kseg.compaction.round import RewrittenGroup, Round
from kseg.compaction.scan import KeyScanner, cut_pieces
from kseg.compaction.spill import DroppedOffsets, DroppedWriter, Resolver, SpillFiles, open_at_once, shared_offsets
from kseg.compaction.strategy import MARGIN
from kseg.compaction.turns import Turns
from kseg.log.segment import Segment
from kseg.log.visibility import AbortedRanges
from kseg.native.keymap import SLOT_BYTES
from kseg.runner import Result, Task, stream_tasks

PIECE_BYTES: Final = 32 << 20
MIN_PIECE_BYTES: Final = 1 << 20
GROWN: Final = 3  # a map that doubles its size takes so much of what it had
PIECES_ALONE: Final = 8  # for each thread, so that all of them end at about the same time
PIECES_SIDE_BY_SIDE: Final = 4  # a piece costs time, and who has nothing left goes on with another partition


def _nobody_asks(run: Run) -> NDArray[np.int64]:
    """All that is left lies aside already."""
    raise AssertionError("a piece that lies aside was read again")


class LocalPasses:
    """Finds the latest offsets, then rewrites; files of its own are only made where keys are spilled."""

    is_staged: Final = False

    def __init__(self, round_: Round, means: Means, stack: ExitStack) -> None:
        """Memory for keys is taken from `means`, and given back with the stack."""
        self._round = round_
        self._means = means
        self._stack = stack
        self.strategy: Strategy = round_.keys.strategy
        self.reason = round_.keys.reason
        self.key_count = 0
        self._threads = round_.workers or os.cpu_count() or 1
        pieces = self._threads * (PIECES_ALONE if means.shares == 1 else PIECES_SIDE_BY_SIDE)
        even = sum(segment.size for segment in round_.segments) // pieces
        self._piece_bytes = min(max(even, MIN_PIECE_BYTES), PIECE_BYTES)
        self._aside: dict[Piece, Rewritten] = {}

    def find_keys(self, folder: Callable[[], Path]) -> tuple[LatestOffsets, list[TransactionRows]]:
        """Pass 1.

        Args:
            folder: Gives a folder for spilled keys, where they are.
        """
        if self.strategy == "memory":
            budget, slots = self._round.config.memory_budget, self._round.keys.slots
            shares = 1 if GROWN * slots * SLOT_BYTES <= budget // self._means.shares else self._means.shares
            attempts = {(slots, shares), (largest_map(budget), self._means.shares)}
            for slots, shares in sorted(attempts):
                with ExitStack() as held, suppress(KeyMapFull):
                    held.enter_context(self._means.take(shares, is_all=shares > 1))
                    found = self._find_in_memory(slots, budget * shares // self._means.shares)
                    self._stack.push(held.pop_all())
                    return found
            self.strategy = "spill"
            self.reason += "; there were more, and they did not fit"
        self._stack.enter_context(self._means.take(self._means.shares, is_all=True))
        return self._find_by_files(folder())

    def _find_in_memory(self, slots: int, budget: int) -> tuple[LatestOffsets, list[TransactionRows]]:
        table = self._means.slots(slots, self._clear_slots if self._means.shares == 1 else clear_slots)
        keys = KeyMap(slots, new_hash_key(), budget, self._threads, table)
        first = self._round.range.first_dirty
        aborted = AbortedRanges.of([*self._round.aborted, *self._round.lingering])
        scanner = KeyScanner(aborted, first, keys, keys.hash_key, decoder=self._means.decoder)
        if self._round.keys.is_swept and not self._round.lingering and GROWN * keys.size < budget:
            parts, is_all_aside = self._sweep(scanner, keys, first, budget)
        else:
            self._means.slabs.clear()
            parts, is_all_aside = self._scan(scanner, first), False
        self.key_count = keys.keys
        if not scanner.in_order:
            self._aside.clear()  # of records that share an offset, bits tell nothing
        elif is_all_aside:
            self._means.give_back(keys.slots)
            return _nobody_asks, parts
        end = max(scanner.last_offset + 1, first)
        held = keys.size + sum(part.nbytes for done in self._aside.values() for part in done.data)
        if not scanner.in_order or self._round.lingering or end - first > 8 * (budget - held):
            return keys.latest_of, parts
        has_earlier = self._round.segments[0].base_offset < first
        # each thread has bits of its own: these take memory, and time where there are many more of them than keys
        fits = (self._threads + 1) * (end - first) <= 8 * (budget - held)
        is_shared = self._threads > 1 and fits and end - first <= keys.size
        kept = self._kept_offsets(keys, first, end, has_earlier=has_earlier, is_shared=is_shared)
        if not has_earlier:
            self._means.give_back(keys.slots)
        return kept, parts

    def _clear_slots(self, table: NDArray[np.int64]) -> None:
        """All threads do it, where they have nothing else to do: new pages take their time."""
        with closing(self._stream(clear_slots, np.array_split(table, self._threads))) as cleared:
            collections.deque(cleared, maxlen=0)

    def _kept_offsets(self, keys: KeyMap, first: int, end: int, *, has_earlier: bool, is_shared: bool) -> KeptOffsets:
        if not is_shared:
            return KeptOffsets.of(keys, first, end, has_earlier=has_earlier)
        kept = KeptOffsets(first, end, keys if has_earlier else None)
        with closing(self._stream(kept.mark, np.array_split(keys.slots, self._threads))) as marked:
            collections.deque(marked, maxlen=0)
        return kept

    def _find_by_files(self, folder: Path) -> tuple[LatestOffsets, list[TransactionRows]]:
        budget = self._round.config.memory_budget
        count = open_at_once(self._round.keys.files, budget)
        with SpillFiles(folder, count, budget) as files:
            first = self._round.segments[0].base_offset
            aborted, lingering = AbortedRanges.of(self._round.aborted), AbortedRanges.of(self._round.lingering)
            scanner = KeyScanner(aborted, first, files, new_hash_key(), lingering, self._means.decoder)
            parts = self._scan(scanner, first)
        if not scanner.in_order:
            raise shared_offsets(self._round.log.directory)
        with DroppedWriter(folder / "dropped") as writer, self._round.phase("compare", count):
            resolver = Resolver(self._round.range.first_dirty, budget // self._threads, self._threads, writer.put)
            with closing(self._stream(lambda path: resolver.resolve(path, count), files.paths)) as resolved:
                for keys in resolved:
                    self.key_count += keys
                    self._round.progress.advance(1)
        dropped = DroppedOffsets(writer.file)
        self._stack.callback(dropped.close)
        return dropped.latest_of, parts

    def _scan(self, scanner: KeyScanner, first: int) -> list[TransactionRows]:
        round_ = self._round
        pieces = cut_pieces(round_.segments, first, self._piece_bytes)
        parts = []
        with round_.phase("keys", sum(piece.size for piece in pieces)):
            results = self._stream(scanner, pieces)
            with closing(results):
                for piece, part in zip(pieces, results, strict=True):
                    parts.append(part)
                    round_.progress.advance(piece.size)
        return parts

    def _sweep(self, scanner: KeyScanner, keys: KeyMap, first: int, budget: int) -> tuple[list[TransactionRows], bool]:
        """Pass 1, and as much of pass 2 as there is memory for beside the map, which may grow; tell whether all is."""
        round_ = self._round
        sample = round_.keys.estimate
        self._piece_bytes = min(self._piece_bytes, sweep.piece_bytes(sample.growth, sample.record_bytes))
        pieces = cut_pieces(round_.segments, first, self._piece_bytes)
        swept = sweep.Sweep(
            scanner,
            keys,
            pieces,
            first,
            round_.rules([]),
            room=lambda: max(budget - GROWN * keys.size, 0),
            expected=MARGIN * sample.keys * sample.record_bytes,
            means=self._means,
        )
        parts = []
        with (
            round_.phase("keys", sum(piece.size for piece in pieces)),
            closing(self._stream(swept, range(len(pieces)), stop=swept.stop)) as results,
        ):
            for piece, part in zip(reversed(pieces), results, strict=True):
                parts.append(part)
                round_.progress.advance(piece.size)
        self._aside = swept.aside
        return parts[::-1], len(self._aside) == len(pieces)

    def _stream(
        self, work: Callable[[Task], Result], tasks: Sequence[Task], stop: Callable[[], None] | None = None
    ) -> Generator[Result]:
        ahead = 2 if self._means.shares == 1 else 1  # threads that wait have something to do for other partitions
        return stream_tasks(work, tasks, workers=self._round.workers, ahead=ahead, submit=self._means.submit, stop=stop)

    def rewrite(
        self, groups: Sequence[Sequence[Segment]], rules: Rules, latest: LatestOffsets
    ) -> Generator[RewrittenGroup]:
        """Pass 2, group by group; threads begin with the next one while the last is still being made complete."""

        def work(task: tuple[Turns, int, Piece]) -> Rewritten:
            turns, number, piece = task
            done = self._aside.pop(piece, None)
            if done is not None:
                for data, table in zip(done.data, done.tables, strict=True):
                    turns.put(number, data, table, stays=True)
                turns.end(number)
                return Rewritten(counts=done.counts, bytes_read=done.bytes_read)
            result = self._means.rewriter(rules, latest).rewrite(piece, exchange=partial(turns.exchange, number))
            turns.end(number)
            return result

        first = self._round.range.first_dirty
        cut = [cut_pieces(group, first, self._piece_bytes) for group in groups]
        turns = [Turns(rooms=self._means.rooms) for _ in groups]
        tasks = [(turn, *task) for turn, pieces in zip(turns, cut, strict=True) for task in enumerate(pieces)]
        with closing(self._stream(work, tasks)) as results:
            for group, turn, pieces in zip(groups, turns, cut, strict=True):
                yield RewrittenGroup(group, partial(turn.gather, islice(results, len(pieces))))
