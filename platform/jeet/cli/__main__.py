"""`python -m jeet.cli`: the same as `jeet`, for a Python whose scripts are not on the PATH."""

from __future__ import annotations

from jeet.cli.main import main

main()
