"""Streams and events: commands."""

from __future__ import annotations

from jeet.cli.group import Group


class Streams(Group):
    """Streams and events"""
