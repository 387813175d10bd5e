"""Every kind of finding: its severity, what it means, what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Severity(StrEnum):
    """How bad a finding is. Damage: records or promises are lost, or a reader is misled."""

    DAMAGE = "damage"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of finding."""

    severity: Severity
    meaning: str
    advice: str


_RECOVER: Final = (
    "Keep a copy. Fetch the partition from a replica, or let 'kseg recover' cut it off or salvage what is behind."
)
_REBUILD: Final = "Stop the broker and delete the file, or run 'kseg recover --all': it is rebuilt from the log."
_LOOK: Final = "Look at the batch with 'kseg dump --records'; compare with a replica ('kseg verify A --against B')."
_START: Final = "Nothing: the next start of a broker, or 'kseg recover', puts it right."
_NOTHING: Final = "Nothing."
_DAMAGE, _WARNING, _INFO = Severity.DAMAGE, Severity.WARNING, Severity.INFO

KINDS: Final[dict[str, Kind]] = {
    "KS101": Kind(
        _DAMAGE,
        "Bytes of a log are no batch: a length or magic is impossible, or the batch is cut off and others follow.",
        _RECOVER,
    ),
    "KS102": Kind(_DAMAGE, "A batch's checksum does not fit its bytes.", _RECOVER),
    "KS103": Kind(
        _DAMAGE,
        "A segment ends in the middle of a batch where that cannot be a crash while appending: it is sealed, or was "
        "shut down cleanly, or the batch's length alone is wrong.",
        _RECOVER,
    ),
    "KS104": Kind(
        _WARNING,
        "The last segment ends in the middle of a batch or in zeros: a crash while appending, or a broker writes it "
        "right now.",
        _START,
    ),
    "KS105": Kind(_DAMAGE, "Offsets fall back or overlap from one batch to the next.", _LOOK),
    "KS106": Kind(_DAMAGE, "A batch's offsets do not fit its segment.", _LOOK),
    "KS107": Kind(_DAMAGE, "A batch says it has a number of records that it cannot have.", _LOOK),
    "KS108": Kind(_DAMAGE, "A batch names a codec that does not exist, or not for its format.", _LOOK),
    "KS109": Kind(
        _WARNING,
        "A batch's timestamps contradict each other.",
        "Retention and lookups by time may go wrong for it.",
    ),
    "KS110": Kind(_DAMAGE, "A batch's leader epoch is impossible.", _LOOK),
    "KS111": Kind(
        _DAMAGE,
        "A control batch whose record cannot be understood: a broker fails on it.",
        "Fetch the partition from a replica, or leave the batch out ('kseg recover --salvage --all').",
    ),
    "KS112": Kind(_WARNING, "A batch's producer id, epoch and sequence contradict each other.", _LOOK),
    "KS113": Kind(_DAMAGE, "So much of a segment is damaged that the rest was not looked at.", _RECOVER),
    "KS114": Kind(
        _WARNING,
        "A batch is larger than max_batch_bytes and was not looked at.",
        "Raise max_batch_bytes (--max-batch-bytes) and verify again.",
    ),
    "KS121": Kind(_DAMAGE, "A batch's records cannot be decompressed or decoded, though its checksum fits.", _LOOK),
    "KS122": Kind(_DAMAGE, "Offsets of records do not rise, or lie outside of their batch.", _LOOK),
    "KS123": Kind(
        _WARNING,
        "A batch's greatest timestamp is not that of its records.",
        "Retention and lookups by time may go wrong for it.",
    ),
    "KS201": Kind(_DAMAGE, "An offset index is malformed: its entries do not rise, or its length is wrong.", _REBUILD),
    "KS202": Kind(
        _DAMAGE,
        "An entry of an offset index misleads readers: no batch starts where it points, or it points behind the batch "
        "that is looked for.",
        _REBUILD,
    ),
    "KS203": Kind(_WARNING, "An entry of an offset index has an offset that no batch of the segment holds.", _REBUILD),
    "KS204": Kind(_INFO, "A segment has no offset index.", _START),
    "KS205": Kind(_DAMAGE, "A time index is malformed: its entries do not rise, or its length is wrong.", _REBUILD),
    "KS206": Kind(
        _DAMAGE,
        "An entry of a time index misleads lookups by time: earlier batches are as late, or no batch is.",
        _REBUILD,
    ),
    "KS207": Kind(_WARNING, "An entry of a time index is below the greatest timestamp up to its offset.", _REBUILD),
    "KS208": Kind(
        _DAMAGE,
        "A sealed segment's time index does not end with the segment's greatest timestamp: lookups by time and "
        "retention go wrong.",
        _REBUILD,
    ),
    "KS209": Kind(
        _WARNING,
        "A sealed segment has no time index, or an empty one: a broker takes the file's time instead.",
        _REBUILD,
    ),
    "KS211": Kind(_DAMAGE, "A transaction index is malformed.", _REBUILD),
    "KS212": Kind(
        _DAMAGE,
        "A transaction index lists an aborted transaction whose marker is not in the log.",
        _REBUILD,
    ),
    "KS213": Kind(
        _DAMAGE,
        "An aborted transaction is missing from the transaction index: read_committed readers get its records.",
        _REBUILD,
    ),
    "KS214": Kind(
        _DAMAGE,
        "A transaction index starts an aborted transaction too late, or ends the search for others too early: "
        "read_committed readers get aborted records.",
        _REBUILD,
    ),
    "KS301": Kind(
        _DAMAGE,
        "A segment holds offsets that belong to the next segment.",
        "Compare both with a replica ('kseg verify A --against B'); a broker serves the later segment.",
    ),
    "KS302": Kind(
        _INFO,
        "Offsets are missing between batches: normal in compacted topics and after truncation.",
        "Nothing in a compacted topic; elsewhere compare with a replica.",
    ),
    "KS303": Kind(_INFO, "Segments lie wholly below the log start offset.", "Nothing: retention deletes them."),
    "KS401": Kind(_WARNING, "A producer snapshot is torn or malformed: brokers pass over it.", _START),
    "KS402": Kind(
        _DAMAGE,
        "A producer snapshot contradicts the log.",
        "Stop the broker and delete the snapshot, or run 'kseg recover --all': it is rebuilt from the log.",
    ),
    "KS403": Kind(_INFO, "Segments have no producer snapshot.", _START),
    "KS404": Kind(
        _WARNING,
        "A log with producer ids has no producer snapshot at all: a broker that finds a clean shutdown forgets its "
        "producers and open transactions.",
        "Start without .kafka_cleanshutdown, or run 'kseg recover --all'.",
    ),
    "KS405": Kind(_INFO, "A producer snapshot belongs to no segment, or lies behind the log's end.", _START),
    "KS406": Kind(
        _WARNING,
        "A producer's sequence numbers leave some out, though no offsets are missing.",
        "Compare with a replica; the producer may have lost records.",
    ),
    "KS407": Kind(
        _WARNING,
        "A producer's sequence numbers come again: records may be in the log twice.",
        "Read these offsets and see whether records are repeated.",
    ),
    "KS408": Kind(
        _DAMAGE,
        "A producer wrote outside of its open transaction: a broker refuses to load such a log.",
        "Fetch the partition from a replica, or leave the batch out ('kseg recover --salvage --all').",
    ),
    "KS409": Kind(
        _WARNING,
        "A transaction hangs: it is open, and its coordinator does not know of it. It holds read_committed readers "
        "and compaction back.",
        "Abort it with kafka-transactions.sh abort.",
    ),
    "KS410": Kind(_INFO, "A transaction is open at the end of the log.", "Nothing, unless it stays open."),
    "KS411": Kind(
        _WARNING,
        "A producer's epoch falls: a fenced producer wrote on.",
        "Read these offsets: the records may not belong there.",
    ),
    "KS501": Kind(_DAMAGE, "Leader epochs fall from one batch to the next.", _LOOK),
    "KS502": Kind(
        _DAMAGE,
        "A batch's leader epoch is not the one that leader-epoch-checkpoint has for its offset.",
        "Compare with a replica; 'kseg recover --all' rebuilds the checkpoint from the batches.",
    ),
    "KS503": Kind(
        _DAMAGE,
        "leader-epoch-checkpoint is malformed: a broker does not start with it.",
        "Run 'kseg recover --all': it is rebuilt from the batches.",
    ),
    "KS504": Kind(_WARNING, "leader-epoch-checkpoint has an epoch that begins behind the log's end.", _START),
    "KS505": Kind(
        _INFO,
        "There is no leader-epoch-checkpoint.",
        "Run 'kseg recover --all' before a broker serves the copy: replicas truncate by it.",
    ),
    "KS601": Kind(
        _DAMAGE,
        "A checkpoint file is malformed: a broker takes it for empty, or does not start.",
        "Restore it from a copy; without it a broker recovers everything, and log start offsets are lost.",
    ),
    "KS602": Kind(
        _DAMAGE,
        "The log start offset lies behind the log's end: a broker deletes the whole log.",
        "Keep a copy before a broker starts; records at the end are lost.",
    ),
    "KS603": Kind(
        _DAMAGE,
        "The high watermark lies behind the log's end: replicated records are lost here.",
        "Fetch the partition from another replica.",
    ),
    "KS604": Kind(
        _WARNING,
        "The recovery point lies behind the log's end: records that were on disk are gone, or the log was truncated "
        "before a crash.",
        "Compare with a replica.",
    ),
    "KS605": Kind(
        _WARNING,
        "The cleaner's checkpoint lies behind the log's end.",
        "Nothing: the cleaner starts anew. Records at the end may be lost.",
    ),
    "KS606": Kind(
        _DAMAGE,
        "A checkpoint or snapshot names an offset of the last segment at which no batch begins or ends: an offset "
        "there is wrong.",
        _LOOK,
    ),
    "KS607": Kind(_INFO, "A checkpoint lists partitions that are not here.", _NOTHING),
    "KS701": Kind(_INFO, "Files wait for their deletion.", _START),
    "KS702": Kind(_WARNING, "A replacement of segments is under way, or a crash has interrupted it.", _START),
    "KS703": Kind(_WARNING, "An index has no log.", _START),
    "KS704": Kind(_INFO, "A file that no broker makes, or that it has left while writing another.", _NOTHING),
    "KS705": Kind(
        _WARNING,
        "A directory whose name is no partition's: a broker that starts here stops at once.",
        "Move it out of the log directory.",
    ),
    "KS706": Kind(_INFO, "A partition directory that a broker has set aside; it was not looked into.", _NOTHING),
    "KS707": Kind(
        _DAMAGE,
        "A file that says what a directory is cannot be understood: a broker does not start with it.",
        "Restore it from a copy, or write it anew from the cluster's metadata.",
    ),
    "KS708": Kind(
        _WARNING,
        "A file or directory cannot be read.",
        "Look at permissions and at the disk, and verify again.",
    ),
    "KS709": Kind(
        _DAMAGE,
        "A segment cannot be read, so nothing is known of its records.",
        "Look at permissions, at the disk or the store, and verify again; restore it from a replica or a copy.",
    ),
    "KS901": Kind(
        _DAMAGE,
        "The copies differ: other records at the same offsets.",
        "Find out which is right (leader epochs, checksums), and restore the other from it.",
    ),
    "KS902": Kind(
        _DAMAGE,
        "The copies differ: offsets that only one of them has.",
        "Normal where one is compacted further; else restore the other from it.",
    ),
    "KS903": Kind(
        _WARNING,
        "The copies hold the same records under other leader epochs.",
        "Compare the leader-epoch-checkpoint of both.",
    ),
    "KS904": Kind(
        _INFO,
        "The copies begin or end at other offsets; what both have was compared.",
        "Nothing, where one lags behind or was kept shorter.",
    ),
    "KS905": Kind(_WARNING, "A partition is missing from the copy.", "Copy it."),
    "KS906": Kind(_INFO, "The copies hold the same records in other batches, or compressed otherwise.", _NOTHING),
    "KS907": Kind(_DAMAGE, "The copy is damaged itself and cannot be compared.", "Verify the copy."),
    "KS908": Kind(
        _WARNING,
        "The copies have no offsets in common: nothing was compared.",
        "Normal for a tier and the local log behind it; else compare with a copy that has these offsets.",
    ),
}
