"""Start here: commands."""

from __future__ import annotations

from jeet.cli.group import Group


class Start(Group):
    """Start here"""
