"""The alert rules ask for metrics that there are, by labels that these have."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from jeet.observe.metrics import _TASK, _TASK_COUNTERS, OF_THE_WHOLE

ALERTS = Path(__file__).resolve().parent.parent.parent / "deploy" / "prometheus" / "alerts.yml"
LABELS = {name: set(labels) for name, (labels, _) in OF_THE_WHOLE.items()} | {
    f"{name}_total": set(_TASK) for name, _ in _TASK_COUNTERS.values()
}


def test_every_alert_asks_for_metrics_that_exist_by_their_labels() -> None:
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    assert len(group["rules"]) >= 10
    for rule in group["rules"]:
        text = rule["expr"]
        named = set(re.findall(r"\bjeet_\w+", text))
        assert named, rule["alert"]
        assert named <= set(LABELS), rule["alert"]
        asked = set(re.findall(r"(\w+)=\"", text))
        for by in re.findall(r"by \(([^)]*)\)", text):
            asked.update(label.strip() for label in by.split(","))
        used = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        assert asked <= set.intersection(*(LABELS[name] for name in named)), rule["alert"]
        assert used <= asked, rule["alert"]
        assert text.count("(") == text.count(")")
        assert rule["labels"]["severity"] in ("page", "ticket")
