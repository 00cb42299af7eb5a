"""Look inside: commands."""

from __future__ import annotations

from jeet.cli.group import Group


class Inspect(Group):
    """Look inside"""
