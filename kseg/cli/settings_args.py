"""The arguments that say whose settings hold: `--metadata`, `--server-properties`, `--topics`, Kafka's own names."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from typing import Any

from kseg.settings.definitions import DEFINITIONS


def add_settings(parser: argparse.ArgumentParser, names: Iterable[str]) -> None:
    """Declare the sources of settings, and a flag for each setting that the verb takes."""
    group = parser.add_argument_group("whose settings hold")
    group.add_argument("--metadata", metavar="DIR", help="a log directory with __cluster_metadata-0, or that directory")
    group.add_argument("--server-properties", metavar="FILE", help="the configuration file of this directory's broker")
    group.add_argument("--topics", metavar="T[,T]", type=_topics, help="these topics only; internal ones by name alone")
    given = parser.add_argument_group(
        "settings for named topics", "stronger than all other sources; for --topics, or for PATH if it is a partition"
    )
    for name in names:
        given.add_argument(DEFINITIONS[name].flag, metavar="VALUE", dest=_dest(name), help=f"Kafka's {name}")


def settings_arguments(args: argparse.Namespace) -> dict[str, Any]:
    """What was given, as the keyword arguments that jobs take: metadata, server_properties, topics, overrides."""
    given: Mapping[str, Any] = vars(args)
    return {
        "metadata": args.metadata,
        "server_properties": args.server_properties,
        "topics": args.topics,
        "overrides": {name: given[_dest(name)] for name in DEFINITIONS if given.get(_dest(name)) is not None},
    }


def _dest(name: str) -> str:
    return "setting_" + DEFINITIONS[name].field


def _topics(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of topics")
    return names
