"""The manifests are valid for Kubernetes, and run nothing as root, with secrets or limits left out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from jeet.cli.main import _find
from jeet.cli.output import Output

ROOT = Path(__file__).resolve().parent.parent.parent
MANIFESTS = sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml"))
VERSIONS = ["1.29", "1.32", "1.35"]


def documents() -> list[dict[str, Any]]:
    return [document for path in MANIFESTS for document in yaml.safe_load_all(path.read_text())]


def pods() -> list[dict[str, Any]]:
    return [d["spec"]["template"]["spec"] for d in documents() if "template" in d["spec"]]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_manifest_is_valid(version: str) -> None:
    assert {document["kind"] for document in documents()} == {"Job", "Deployment", "PodDisruptionBudget"}
    for document in documents():
        kubernetes_validate.validate(document, version, strict=True)


def test_pods_run_without_root_and_write_only_to_their_volumes() -> None:
    assert len(pods()) == 3
    for pod in pods():
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["automountServiceAccountToken"] is False
        for container in pod["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
            assert {"cpu", "memory"} <= container["resources"]["limits"].keys()


def test_the_address_of_the_database_comes_from_a_secret() -> None:
    for pod in pods():
        for container in pod["containers"]:
            (url,) = [env for env in container["env"] if env["name"] == "JEET_DATABASE_URL"]
            assert "secretKeyRef" in url["valueFrom"]
    assert "password" not in "".join(path.read_text().lower() for path in MANIFESTS)


def test_two_coordinators_and_the_workers_have_probes_and_time_to_drain() -> None:
    found = {d["metadata"]["name"]: d["spec"] for d in documents() if d["kind"] == "Deployment"}
    assert found["jeet-coordinator"]["replicas"] == 2
    for spec in found.values():
        pod = spec["template"]["spec"]
        assert pod["terminationGracePeriodSeconds"] > 8
        assert {"livenessProbe", "startupProbe"} <= pod["containers"][0].keys()


def commands() -> list[list[str]]:
    found = [container["args"] for pod in pods() for container in pod["containers"]]
    for pod in pods():
        for container in pod["containers"]:
            probe = container.get("livenessProbe")
            found += [probe["exec"]["command"][1:]] if probe else []
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())
    for name, service in compose["services"].items():
        if name != "postgres":
            found.append(service["command"])
            found += [service["healthcheck"]["test"][2:]] if "healthcheck" in service else []
    return found


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_containers_run_commands_that_exist(words: list[str]) -> None:
    _find(words, Output())


def test_the_image_runs_as_a_user_of_its_own_without_a_shell_in_between() -> None:
    text = (ROOT / "Dockerfile").read_text()
    assert re.search(r"^ARG BASE_IMAGE=", text, re.MULTILINE)
    assert re.search(r"^USER 10001", text, re.MULTILINE)
    assert 'ENTRYPOINT ["jeet"]' in text
    assert len(re.findall(r"^FROM ", text, re.MULTILINE)) >= 2


def test_compose_starts_postgres_a_coordinator_and_two_workers() -> None:
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    assert services["worker"]["deploy"]["replicas"] == 2
    assert services["coordinator"]["depends_on"]["migrate"]["condition"] == "service_completed_successfully"
    assert services["worker"]["read_only"] is True
