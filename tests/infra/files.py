"""What lies in infra/, read: every YAML document, and every container with what it is told."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.clone import ROOT, tracked

INFRA = ROOT / "infra"


def own_files() -> list[Path]:
    """All of infra/ but what git does not know: secrets and settings of one's own."""
    return tracked("infra")


def yaml_files() -> list[Path]:
    return [path for path in own_files() if path.suffix in (".yaml", ".yml")]


def scripts() -> list[Path]:
    """Files that a shell runs."""
    return [p for p in own_files() if p.read_text(encoding="utf-8").startswith("#!/bin/bash")]


def documents(path: Path) -> list[Any]:
    return [each for each in yaml.safe_load_all(path.read_text(encoding="utf-8")) if each]


def compose() -> dict[str, Any]:
    return dict(documents(INFRA / "compose.yaml")[0])


def kubernetes_objects() -> list[dict[str, Any]]:
    """Every object of the manifests as they stand; kustomizations are none."""
    return [
        each
        for path in yaml_files()
        if "kubernetes" in path.parts and path.name != "kustomization.yaml"
        for each in documents(path)
    ]


def of_kind(*kinds: str) -> list[dict[str, Any]]:
    return [each for each in kubernetes_objects() if each["kind"] in kinds]


@dataclass(frozen=True)
class Pod:
    """A pod that one of the manifests makes: whose it is, its labels and its spec."""

    name: str
    labels: dict[str, str]
    spec: dict[str, Any]


def pods(objects: list[dict[str, Any]] | None = None) -> list[Pod]:
    """The pods of Deployments, StatefulSets, RayClusters and RayJobs."""
    return [
        Pod(f"{each['kind']} {each['metadata']['name']} {part}", *_parts(template))
        for each in (kubernetes_objects() if objects is None else objects)
        for part, template in _templates(each)
    ]


def _parts(template: dict[str, Any]) -> tuple[dict[str, str], dict[str, Any]]:
    return template["metadata"]["labels"], template["spec"]


def _templates(each: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    spec = each.get("spec", {})
    if "template" in spec:
        yield "", spec["template"]
    for ray in (spec, spec.get("rayClusterSpec", {})):
        if "headGroupSpec" in ray:
            yield "head", ray["headGroupSpec"]["template"]
            for group in ray["workerGroupSpecs"]:
                yield group["groupName"], group["template"]
    if "submitterPodTemplate" in spec:
        yield "submitter", spec["submitterPodTemplate"]


def images() -> list[str]:
    """Every image with its tag: compose's, the pods' as kustomize names them, and the bases."""
    named = [service["image"] for service in compose()["services"].values() if "image" in service]
    renamed = {
        each["name"]: f"{each['newName']}:{each['newTag']}"
        for each in documents(INFRA / "kubernetes/images/kustomization.yaml")[0]["images"]
    }
    for pod in pods():
        for container in pod.spec["containers"]:
            named.append(renamed.get(container["image"], container["image"]))
    return named


def dockerfile() -> str:
    return (INFRA / "docker/Dockerfile").read_text(encoding="utf-8")


def image_environment() -> dict[str, str]:
    """The variables that our image sets for what runs in it."""
    last = dockerfile().rpartition("\nFROM ")[2]
    (values,) = re.findall(r"^ENV ((?:.*\\\n)*.*)$", last, re.MULTILINE)
    return dict(each.partition("=")[::2] for each in values.replace("\\\n", " ").split())


def writable() -> dict[str, set[str]]:
    """By each container of our image the folders that it may write in; its root is read-only."""
    found = {}
    for name, service in compose()["services"].items():
        if service["image"].startswith("seq2sweep") and "entrypoint" not in service:
            volumes = {mount.split(":")[1] for mount in service.get("volumes", [])}
            tmpfs = {mount.split(":")[0] for mount in service["tmpfs"] if "mode=0," not in mount}
            found[f"compose {name}"] = volumes | tmpfs
    for pod in pods():
        for container in pod.spec["containers"]:
            if container["image"].startswith("seq2sweep"):
                mounts = [each for each in container["volumeMounts"] if not each.get("readOnly")]
                found[pod.name] = {each["mountPath"] for each in mounts}
    return found


def pinned() -> dict[str, str]:
    """Package to version, as constraints.txt has them."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return dict(re.findall(r"^([\w.-]+)==(\S+)$", "\n".join(lines), re.MULTILINE))
