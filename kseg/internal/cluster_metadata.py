"""Records of `__cluster_metadata` and its snapshots: topics, partitions, brokers, settings.

Secrets are not shown: salts and keys of SCRAM credentials, ids of delegation tokens, and values of settings whose
name tells of a password or key become `<redacted>`. Control records of this log are in `control_records`.
"""

from __future__ import annotations

import re
from typing import Final

from kseg.errors import CorruptRecordError
from kseg.internal.framing import FramedRecords
from kseg.internal.schema import REDACTED, Fields, Message, message

TOPIC: Final = "__cluster_metadata"
CONFIG: Final = 4

# By number: what `resourceType` of a ConfigRecord says.
RESOURCE_TYPES: Final = {2: "topic", 4: "broker", 16: "client-metrics", 32: "group"}

# Kafka knows which settings are of type PASSWORD; plugins bring their own, so names are judged, rather once too often.
_SECRET_NAME: Final = re.compile(
    r"passw|passphrase|secret|jaas|credential|private|account\.key|access\.key|sas\.token|connection\.string"
    r"|[._-]key$|token$|certificate\.chain|truststore\.certificates",
    re.IGNORECASE,
)

_ENDPOINT = """
    name               string
    host               string
    port               uint16
    securityProtocol   int16
"""
_FEATURE = """
    name                  string
    minSupportedVersion   int16
    maxSupportedVersion   int16
"""
_BROKER_AND_EPOCH = """
    brokerId      int32
    brokerEpoch   int64
"""
_ID_AND_EPOCH = """
    id      int32
    epoch   int64
"""


def _record(name: str, table: str = "", *, versions: str = "0", **structs: str) -> Message:
    return message(f"{name}Record", versions, "0+", table, structs)


_TYPES: Final = {
    0: _record(
        "RegisterBroker",
        """
        brokerId               int32
        isMigratingZkBroker    bool   2+   =false
        incarnationId          uuid
        brokerEpoch            int64
        endPoints              []BrokerEndpoint
        features               []BrokerFeature
        rack                   string?
        fenced                 bool        =true
        inControlledShutdown   bool   1+   =false
        logDirs                []uuid    3+   tag=0
        cordonedLogDirs        []uuid?   4+   tag=1   =null
        """,
        versions="0-4",
        BrokerEndpoint=_ENDPOINT,
        BrokerFeature=_FEATURE,
    ),
    1: _record("UnregisterBroker", _BROKER_AND_EPOCH),
    2: _record(
        "Topic",
        """
        name      string
        topicId   uuid
        """,
    ),
    3: _record(
        "Partition",
        """
        partitionId              int32   =-1
        topicId                  uuid
        replicas                 []int32
        isr                      []int32
        removingReplicas         []int32
        addingReplicas           []int32
        leader                   int32   =-1
        leaderRecoveryState      int8    =0    tag=0
        leaderEpoch              int32   =-1
        partitionEpoch           int32   =-1
        directories              []uuid     1+
        eligibleLeaderReplicas   []int32?   2+   tag=1   =null
        lastKnownElr             []int32?   2+   tag=2   =null
        """,
        versions="0-2",
    ),
    CONFIG: _record(
        "Config",
        """
        resourceType   int8
        resourceName   string
        name           string
        value          string?
        """,
    ),
    5: _record(
        "PartitionChange",
        """
        partitionId              int32   =-1
        topicId                  uuid
        isr                      []int32?        tag=0   =null
        leader                   int32           tag=1   =-2
        replicas                 []int32?        tag=2   =null
        removingReplicas         []int32?        tag=3   =null
        addingReplicas           []int32?        tag=4   =null
        leaderRecoveryState      int8            tag=5   =-1
        directories              []uuid?    1+   tag=8   =null
        eligibleLeaderReplicas   []int32?   2+   tag=6   =null
        lastKnownElr             []int32?   2+   tag=7   =null
        """,
        versions="0-2",
    ),
    7: _record("FenceBroker", _ID_AND_EPOCH),
    8: _record("UnfenceBroker", _ID_AND_EPOCH),
    9: _record("RemoveTopic", "topicId   uuid"),
    10: _record(
        "DelegationToken",
        """
        owner                 string
        requester             string
        renewers              []string
        issueTimestamp        int64
        maxTimestamp          int64
        expirationTimestamp   int64
        tokenId               string   secret
        """,
    ),
    11: _record(
        "UserScramCredential",
        """
        name         string
        mechanism    int8
        salt         bytes   secret
        storedKey    bytes   secret
        serverKey    bytes   secret
        iterations   int32
        """,
    ),
    12: _record(
        "FeatureLevel",
        """
        name           string
        featureLevel   int16
        """,
    ),
    14: _record(
        "ClientQuota",
        """
        entity         []EntityData
          entityType     string
          entityName     string?
        key            string
        value          float64
        remove         bool
        """,
    ),
    15: _record(
        "ProducerIds",
        """
        brokerId         int32
        brokerEpoch      int64   =-1
        nextProducerId   int64
        """,
    ),
    17: _record(
        "BrokerRegistrationChange",
        """
        brokerId               int32
        brokerEpoch            int64
        fenced                 int8            tag=0
        inControlledShutdown   int8       1+   tag=1
        logDirs                []uuid     2+   tag=2
        cordonedLogDirs        []uuid?    3+   tag=3   =null
        """,
        versions="0-3",
    ),
    18: _record(
        "AccessControlEntry",
        """
        id               uuid
        resourceType     int8
        resourceName     string
        patternType      int8
        principal        string
        host             string
        operation        int8
        permissionType   int8
        """,
    ),
    19: _record("RemoveAccessControlEntry", "id   uuid"),
    20: _record("NoOp"),
    21: _record("ZkMigrationState", "zkMigrationState   int8"),
    22: _record(
        "RemoveUserScramCredential",
        """
        name        string
        mechanism   int8
        """,
    ),
    23: _record("BeginTransaction", "name   string?   tag=0   =null"),
    24: _record("EndTransaction"),
    25: _record("AbortTransaction", "reason   string?   tag=0   =null"),
    26: _record("RemoveDelegationToken", "tokenId   string   secret"),
    27: _record(
        "RegisterController",
        """
        controllerId       int32
        incarnationId      uuid
        zkMigrationReady   bool
        endPoints          []ControllerEndpoint
        features           []ControllerFeature
        """,
        ControllerEndpoint=_ENDPOINT,
        ControllerFeature=_FEATURE,
    ),
    28: _record("ClearElr", "topicName   string"),
}

_WITH_SECRETS: Final = frozenset(number for number, kind in _TYPES.items() if kind.secrets or number == CONFIG)

RECORDS: Final = FramedRecords(_TYPES, _WITH_SECRETS)


def looks_secret(name: str) -> bool:
    """Tell whether a setting of this name may hold a secret."""
    return _SECRET_NAME.search(name) is not None


def decode(key: bytes | None, value: bytes | None, *, redact: bool = True) -> Fields:
    """Decode one record that is not in a control batch."""
    if value is None:
        raise CorruptRecordError("a metadata record has no value")
    decoded = RECORDS.decode(key, value, redact=redact)
    if redact and decoded.get("typeId") == CONFIG:
        config = decoded["value"]
        if config["value"] is not None and looks_secret(config["name"]):
            decoded["value"] = {**config, "value": REDACTED}
    return decoded
