"""Dead letters: commands."""

from __future__ import annotations

from jeet.cli.group import Group


class DeadLetters(Group):
    """Dead letters"""
