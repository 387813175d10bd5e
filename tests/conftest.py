"""Fixtures that more than one folder of tests uses, and the rules of a run."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.kafka.broker import Broker
from tests.kafka.jars import Missing
from tests.kafka.oracle import Oracle
from tests.s3.server import S3_ENVIRONMENT, S3Server
from tests.scale import FACTOR, counts
from tests.shares import Shares
from tests.strict import (  # noqa: F401  (hooks: pytest finds them by name)
    pytest_collectreport,
    pytest_runtest_logreport,
    pytest_sessionfinish,
    pytest_terminal_summary,
    refuse_loose_xfails,
)

for _profile, _examples in (("dev", 50), ("ci", 60), ("soak", 100)):
    settings.register_profile(_profile, max_examples=counts(_examples), deadline=None, print_blob=True)
settings.load_profile("soak" if FACTOR > 1 else "ci" if os.environ.get("CI") == "true" else "dev")

_MARK_BY_FIXTURE = {"oracle": "oracle", "broker": "broker", "broker_factory": "broker", "s3": "s3"}


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Shares())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests by the fixtures they use, and keep those of one costly fixture on one worker."""
    refuse_loose_xfails(items)
    if FACTOR == 1:
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("soak")])
        items[:] = [item for item in items if not item.get_closest_marker("soak")]
    for item in items:
        for fixture, mark in _MARK_BY_FIXTURE.items():
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(mark)
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.xdist_group("spark"))
        elif item.get_closest_marker("broker"):
            item.add_marker(pytest.mark.xdist_group(item.path.name))


def pytest_collection_finish() -> None:
    """Spare the garbage collector what modules and tests hold to the end: it went through all of it time and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def golden() -> Path:
    """The folder of logs that real brokers wrote. Read only: copy what a test changes (the oracle's `load` does)."""
    return Path(__file__).parent / "golden"


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    """Kafka's own storage classes in one JVM for the session."""
    try:
        started = Oracle.start()
    except Missing as missing:
        pytest.skip(str(missing))
    with started:
        yield started


@pytest.fixture(scope="session")
def broker_factory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Broker]]:
    """Make brokers, each with a data folder of its own: `broker_factory(**{"log.segment.bytes": 1048576})`.

    They are made stopped; `with broker:` or `broker.start()` runs them. What still runs at the end is stopped.
    """
    made: list[Broker] = []

    def make(**settings: object) -> Broker:
        try:
            broker = Broker(tmp_path_factory.mktemp("broker"), settings)
        except Missing as missing:
            pytest.skip(str(missing))
        made.append(broker)
        return broker

    yield make
    for broker in made:
        broker.stop()


@pytest.fixture(scope="session")
def broker(broker_factory: Callable[..., Broker]) -> Iterator[Broker]:
    """One running broker for the session; give each test's topics names of their own, and leave it running."""
    with broker_factory() as running:
        yield running


@pytest.fixture
def s3(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """A running S3 server of the test's own; its credentials are in the environment."""
    try:
        server = S3Server(tmp_path_factory.mktemp("s3"))
    except Missing as missing:
        pytest.skip(str(missing))
    for name, value in S3_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    with server:
        yield server
