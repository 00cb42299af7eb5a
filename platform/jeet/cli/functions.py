"""Functions: commands."""

from __future__ import annotations

from jeet.cli.group import Group


class Functions(Group):
    """Functions"""
