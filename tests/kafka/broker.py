"""A real Kafka broker on loopback, one node in KRaft mode, and clients to fill and read it."""

from __future__ import annotations

import base64
import re
import socket
import subprocess
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.kafka.jars import class_path, java, kafka_libs, logging_libs

START_SECONDS = 60.0
STOP_SECONDS = 60.0
CLIENT_SECONDS = 30.0

_SMALL_JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")  # quick to start, modest beside other tests
_LOGGING = """status=error
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d %p %m (%c{1})%n%throwable
rootLogger.level=info
rootLogger.appenderRef.out.ref=out
"""


_formatted: dict[str, bytes] = {}


class BrokerError(Exception):
    """The broker or one of its tools failed; the message ends in what it printed."""


class Row(NamedTuple):
    """One record as a consumer saw it; `timestamp_type` by Kafka's ids: -1 none, 0 CreateTime, 1 LogAppendTime."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class Broker:
    """One broker whose data and log live below `folder`; it can be started, stopped and killed many times.

    Its partition directories are `partition_dir(topic, partition)`. A broker takes a directory it does not know
    for a stray one: to place files, create the topic, stop, replace the files but not `partition.metadata`, start.
    """

    def __init__(
        self, folder: Path, settings: Mapping[str, object] | None = None, jvm: Sequence[str] = _SMALL_JVM
    ) -> None:
        """Write the configuration and format the storage; raises Missing without Java or the jars."""
        self._jvm = tuple(jvm)
        self.folder = folder
        self.data_dir = folder / "data"
        self.log_file = folder / "server.log"
        self._class_path = class_path(kafka_libs(), logging_libs())
        self._process: subprocess.Popen[bytes] | None = None
        port, controller_port = _free_ports(2)
        self.address = f"127.0.0.1:{port}"
        self._write_config(controller_port, settings or {})
        self._format()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start and wait until it answers; a failure shows the end of its log."""
        if self._process is not None:
            raise BrokerError("the broker runs already")
        command = [java(), *self._jvm]
        command += [f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}", "-cp", self._class_path]
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen([*command, "kafka.Kafka", str(self._properties)], stdout=log, stderr=log)
        try:
            self._wait_until_up()
        except BrokerError:
            self.kill()
            raise

    def stop(self) -> None:
        """Shut down cleanly (SIGTERM) and wait; nothing to do where it does not run."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerError(f"no clean shutdown within {STOP_SECONDS} s: {self.log_tail()}") from None
        self._process = None

    def kill(self) -> None:
        """End it at once (SIGKILL), as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @property
    def pid(self) -> int:
        """The running broker's process."""
        if self._process is None:
            raise BrokerError("the broker does not run")
        return self._process.pid

    def log_tail(self, size: int = 4000) -> str:
        """Return the end of what the broker logged."""
        return self.log_file.read_text(encoding="utf-8", errors="replace")[-size:]

    def partition_dir(self, topic: str, partition: int = 0) -> Path:
        """Return where the broker keeps a partition."""
        return self.data_dir / f"{topic}-{partition}"

    # -- clients -------------------------------------------------------------------------------------------------------

    def create_topic(self, topic: str, partitions: int = 1, config: Mapping[str, object] | None = None) -> None:
        """Create a topic, with topic settings by Kafka's names, and wait until its directories are there."""
        texts = {name: str(value) for name, value in (config or {}).items()}
        admin = AdminClient({"bootstrap.servers": self.address})
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=texts)
        admin.create_topics([new])[topic].result(CLIENT_SECONDS)
        deadline = time.monotonic() + CLIENT_SECONDS
        while not all((self.partition_dir(topic, p) / "partition.metadata").exists() for p in range(partitions)):
            if time.monotonic() > deadline:
                raise BrokerError(f"{topic}: created, but its directories did not appear: {self.log_tail()}")
            time.sleep(0.05)

    def producer(self, **config: object) -> Producer:
        """Return a librdkafka producer; settings as `**{"compression.type": "lz4"}`."""
        return Producer({"bootstrap.servers": self.address, "linger.ms": 5, **config})

    def produce(self, topic: str, rows: Iterable[Mapping[str, Any]], partition: int = 0, **config: object) -> None:
        """Send rows (key, value, timestamp, headers: each may be absent) to one partition and wait for the answers."""
        producer = self.producer(**config)
        failures: list[KafkaError] = []
        for row in rows:
            producer.produce(
                topic, partition=partition, on_delivery=lambda e, _: failures.append(e) if e else None, **row
            )
            producer.poll(0)
        if producer.flush(CLIENT_SECONDS) or failures:
            raise BrokerError(f"{topic}-{partition}: records were not taken: {failures[:3]}")

    def consume(
        self, topic: str, partition: int = 0, *, committed: bool = False, start: int | None = None
    ) -> list[Row]:
        """Read a partition from its log start (or `start`) to the high watermark or the last stable offset."""
        consumer = Consumer({
            "bootstrap.servers": self.address,
            "group.id": "kseg-tests",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        })  # fmt: skip
        try:
            low = _low_watermark(consumer, TopicPartition(topic, partition))
            consumer.assign([TopicPartition(topic, partition, low if start is None else start)])
            return _read_to_end(consumer, f"{topic}-{partition}")
        finally:
            consumer.close()

    # -- inside --------------------------------------------------------------------------------------------------------

    @property
    def _properties(self) -> Path:
        return self.folder / "server.properties"

    def _write_config(self, controller_port: int, settings: Mapping[str, object]) -> None:
        (self.folder / "log4j2.properties").write_text(_LOGGING, encoding="utf-8")
        config = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": self.data_dir,
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 1,
            "group.initial.rebalance.delay.ms": 0,
            "broker.session.timeout.ms": 3000,  # a restart after a kill waits this long for the dead one's session
            "broker.heartbeat.interval.ms": 500,
            **settings,
        }
        lines = "".join(f"{name}={value}\n" for name, value in config.items())
        self._properties.write_text(lines, encoding="utf-8")

    def _format(self) -> None:
        """Kafka's own tool formats the first storage of a process; others are the same but for the cluster's id."""
        cluster_id = base64.urlsafe_b64encode(b"kseg" + uuid.uuid4().bytes[4:]).rstrip(b"=")
        if not _formatted:
            run_tool("kafka.tools.StorageTool", "format", "-t", cluster_id.decode(), "-c", str(self._properties))
            _formatted.update({path.name: path.read_bytes() for path in self.data_dir.iterdir()})
            return
        self.data_dir.mkdir()
        for name, data in _formatted.items():
            (self.data_dir / name).write_bytes(re.sub(rb"(?m)^cluster\.id=.*$", b"cluster.id=" + cluster_id, data))

    def _wait_until_up(self) -> None:
        host, port = self.address.split(":")
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                raise BrokerError(f"the broker did not start: {self.log_tail()}")
            try:
                socket.create_connection((host, int(port)), timeout=1).close()
            except OSError:
                time.sleep(0.1)
                continue
            AdminClient({"bootstrap.servers": self.address}).list_topics(timeout=START_SECONDS)
            return
        raise BrokerError(f"the broker was not up within {START_SECONDS} s: {self.log_tail()}")


def dump_log_segments(files: Iterable[Path], *flags: str) -> str:
    """Return what Kafka's DumpLogSegments prints for files (`--deep-iteration`, `--index-sanity-check`, ...)."""
    names = ",".join(str(file) for file in files)
    return run_tool("org.apache.kafka.tools.DumpLogSegments", "--files", names, *flags)


def run_tool(main_class: str, *arguments: str) -> str:
    """Run one of Kafka's command-line tools; return what it printed."""
    command = [java(), *_SMALL_JVM, "-cp", class_path(kafka_libs()), main_class, *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if answer.returncode != 0:
        raise BrokerError(f"{main_class} {' '.join(arguments)}: {answer.stdout[-2000:]}{answer.stderr[-2000:]}")
    return answer.stdout + answer.stderr  # mismatches are told on stderr, and with status 0


def _low_watermark(consumer: Consumer, partition: TopicPartition) -> int:
    """Where a partition begins; a broker that has just started may not lead it yet."""
    deadline = time.monotonic() + CLIENT_SECONDS
    while True:
        try:
            return consumer.get_watermark_offsets(partition, timeout=CLIENT_SECONDS)[0]
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION or time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def _read_to_end(consumer: Consumer, partition: str) -> list[Row]:
    rows: list[Row] = []
    deadline = time.monotonic() + CLIENT_SECONDS
    while True:
        message = consumer.poll(CLIENT_SECONDS)
        if message is None:
            raise BrokerError(f"{partition}: the consumer saw neither a record nor the end within {CLIENT_SECONDS} s")
        error = message.error()
        if error is None:
            kind, timestamp = message.timestamp()
            headers = list(message.headers() or ())
            rows.append(Row(message.offset(), timestamp, kind - 1, message.key(), message.value(), headers))
        elif error.code() == KafkaError._PARTITION_EOF:
            return rows
        elif rows or error.code() != KafkaError.UNKNOWN or time.monotonic() > deadline:
            # a broker that has just started, and knows its tier not yet, says UNKNOWN at first: clients ask again
            raise KafkaException(error)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
