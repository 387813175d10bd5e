"""The log directory of a real broker: while it runs, after it was killed, and after a clean stop."""

from __future__ import annotations

import threading
import time

import kseg
from kseg.verification.kinds import Severity

LEGITIMATE = {"KS104", "KS702"}  # a batch that is half written, a replacement under way


def test_a_broker_at_work_killed_and_stopped(broker_factory):
    broker = broker_factory(**{
        "log.segment.bytes": 1 << 20, "log.cleaner.backoff.ms": 200, "log.cleaner.min.cleanable.ratio": 0.01,
        "replica.high.watermark.checkpoint.interval.ms": 500,
    })  # fmt: skip
    with broker:
        broker.create_topic("plain", 2)
        broker.create_topic("compacted", 1, {"cleanup.policy": "compact", "segment.ms": 1000})
        broker.create_topic("tx", 1)
        stop = threading.Event()
        writer = threading.Thread(target=_write, args=(broker, stop))
        writer.start()
        try:
            for _ in range(12):
                _assert_no_alarm(broker.data_dir, but=LEGITIMATE)
                stop.wait(0.2)
        finally:
            stop.set()
            writer.join()
        broker.kill()
        _assert_no_alarm(broker.data_dir, but=LEGITIMATE | {"KS409"})
        broker.start()
        _wait_until_cleaned(broker.data_dir)
    _assert_no_alarm(broker.data_dir, but={"KS409"})


def _assert_no_alarm(path, *, but):
    report = kseg.verify(path, deep=True)
    wrong = [f for f in report.findings if f.severity is not Severity.INFO and f.code not in but]
    assert wrong == [], "\n".join(f"{f.code} {f.path} {f.detail}" for f in wrong)


def _wait_until_cleaned(path):
    """A stop in the middle of a round leaves a `.cleaned` file; nothing is written any more, so the rounds end."""
    calm_since = began = time.monotonic()
    while time.monotonic() - calm_since < 2:  # ten times the cleaner's pause
        if any(path.glob("*/*.cleaned")) or any(path.glob("*/*.swap")):
            calm_since = time.monotonic()
        assert time.monotonic() - began < 60
        time.sleep(0.01)


def _write(broker, stop):
    idempotent = broker.producer(**{"enable.idempotence": True, "compression.type": "lz4"})
    transactional = broker.producer(**{"transactional.id": "t", "transaction.timeout.ms": 60_000})
    transactional.init_transactions(30)
    number = 0
    while not stop.is_set():
        for _ in range(200):
            number += 1
            idempotent.produce("plain", b"v" * 300, b"k%d" % number, partition=number % 2)
            idempotent.produce("compacted", b"v" * 300, b"k%d" % (number % 50))
        idempotent.flush(30)
        transactional.begin_transaction()
        for i in range(20):
            transactional.produce("tx", b"v" * 200, b"k%d" % i)
        transactional.flush(30)
        if number % 3:
            transactional.commit_transaction(30)
        else:
            transactional.abort_transaction(30)
