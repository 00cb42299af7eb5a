"""Settings are numbers that mean something, or they are refused by name."""

from __future__ import annotations

from dataclasses import fields

import pytest

from jeet.errors import SettingsError
from jeet.settings import Settings

NUMBERS = [spec.name for spec in fields(Settings) if str(spec.type) in ("int", "float")]


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "-1", "0"])
@pytest.mark.parametrize("name", NUMBERS)
def test_no_setting_takes_what_is_not_a_finite_number_above_0(name: str, text: str) -> None:
    with pytest.raises(SettingsError, match=f"JEET_{name.upper()} is "):
        Settings.from_environment({f"JEET_{name.upper()}": text})
