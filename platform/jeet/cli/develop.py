"""Write functions: commands."""

from __future__ import annotations

from jeet.cli.group import Group


class Develop(Group):
    """Write functions"""
