"""Records of `__transaction_state`: one key for each transactional id; the latest value tells its state."""

from __future__ import annotations

from typing import Final

from kseg.internal.framing import CoordinatorRecords, coordinator_type

TOPIC: Final = "__transaction_state"

# By number: what `transactionStatus` says.
STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)

TRANSACTION_LOG: Final = coordinator_type(
    0,
    "TransactionLog",
    "transactionalId   string",
    """
    producerId                         int64
    previousProducerId                 int64   1+   =-1   tag=0
    nextProducerId                     int64   1+   =-1   tag=1
    producerEpoch                      int16
    nextProducerEpoch                  int16   1+   =-1   tag=3
    transactionTimeoutMs               int32
    transactionStatus                  int8
    transactionPartitions              []PartitionsSchema?
      topic                              string
      partitionIds                       []int32
    transactionLastUpdateTimestampMs   int64
    transactionStartTimestampMs        int64
    clientTransactionVersion           int16   1+   =0    tag=2
    """,
    versions="0-1",
    flexible="1+",
)

RECORDS: Final = CoordinatorRecords({0: TRANSACTION_LOG})
