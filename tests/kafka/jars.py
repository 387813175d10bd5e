"""Kafka's jars, fetched once with Maven into a cache folder.

The folder is KSEG_CACHE_DIR, else XDG_CACHE_HOME/kseg, else ~/.cache/kseg; `python -m tests.kafka.jars` fills it.
A folder of jars is published by rename, so one that exists is complete; a file lock keeps parallel test workers from
fetching twice.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

KAFKA_VERSION = "4.3.1"
LOG4J_VERSION = "2.25.4"  # that of the log4j-core which Kafka brings
MIN_JAVA = 17
FETCH_SECONDS = 600

DEPENDENCY = (
    "<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
    "<version>{version}</version>{more}</dependency>"
)
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>kseg</groupId>
  <artifactId>kafka-libs</artifactId>
  <version>1</version>
  <dependencies>
    {dependencies}
  </dependencies>
</project>
"""
_TEST = "<classifier>test</classifier>"
_KAFKA = [("kafka_2.13", ""), ("kafka-tools", ""), ("kafka-storage", _TEST), ("kafka-clients", _TEST)]


class Missing(Exception):
    """Something that these tests need is not on this machine; the message says what."""


def cache_dir() -> Path:
    """Return the folder that holds what tests fetch or compile for this version of Kafka."""
    user = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("KSEG_CACHE_DIR") or Path(user) / "kseg") / f"kafka-{KAFKA_VERSION}"


@functools.cache
def java() -> str:
    """Return the path of a Java that is new enough."""
    found = shutil.which("java")
    if found is None:
        raise Missing("no java on the PATH: install a JDK, 17 or newer")
    answer = subprocess.run([found, "-version"], capture_output=True, text=True, timeout=60, check=False)
    version = re.search(r'version "(\d+)', answer.stderr)
    if version is None or int(version[1]) < MIN_JAVA:
        raise Missing(f"java {version[1] if version else '(unknown version)'} is too old: install a JDK, 17 or newer")
    return found


@functools.cache
def kafka_libs() -> Path:
    """Return the folder of Kafka's jars, tools and test classes included."""
    pom = "\n    ".join(
        DEPENDENCY.format(group="org.apache.kafka", artifact=name, version=KAFKA_VERSION, more=more)
        for name, more in _KAFKA
    )
    return fetched("libs", pom)


@functools.cache
def logging_libs() -> Path:
    """Return the folder of the jar that lets a broker write its log; apart, to keep the oracle's answers clean."""
    exclusions = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    pom = DEPENDENCY.format(
        group="org.apache.logging.log4j", artifact="log4j-slf4j-impl", version=LOG4J_VERSION, more=exclusions
    )
    return fetched("logging", pom)


def class_path(*folders: Path) -> str:
    """Return a class path of every jar of some folders, and of the folders that hold classes."""
    return os.pathsep.join(str(entry) for folder in folders for entry in sorted(folder.glob("*.jar")) or [folder])


@contextlib.contextmanager
def published(target: Path) -> Iterator[Path | None]:
    """Give an empty folder to fill, which becomes `target` at the end; None where another process made it meanwhile."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f"{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.exists():
            yield None
            return
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f"{target.name}-") as folder:
            filled = Path(folder) / target.name
            filled.mkdir()
            yield filled
            filled.rename(target)


def fetched(name: str, dependencies: str) -> Path:
    target = cache_dir() / name
    if target.exists():
        return target
    java()
    maven = shutil.which("mvn")
    if maven is None:
        raise Missing(f"Kafka {KAFKA_VERSION}'s jars are not cached and there is no mvn on the PATH: install Maven")
    with published(target) as folder:
        if folder is not None:
            pom = folder.parent / "pom.xml"
            pom.write_text(_POM.format(dependencies=dependencies), encoding="utf-8")
            command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
            answer = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False)
            if answer.returncode != 0:
                raise Missing(f"Maven could not fetch Kafka {KAFKA_VERSION}'s jars: {answer.stdout.strip()[:500]}")
    return target


def main() -> int:
    """Fetch everything; say in one line why not."""
    try:
        kafka_libs()
        logging_libs()
    except Missing as missing:
        sys.stderr.write(f"{missing}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
