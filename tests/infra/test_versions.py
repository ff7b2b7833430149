"""Versions stand in constraints.txt and pyproject.toml; infra/ repeats some and must agree."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.infra.files import INFRA, ROOT, dockerfile, documents, images, of_kind, own_files, pinned

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FLOOR = PROJECT["requires-python"].removeprefix(">=")


def tag_is_pinned(image: str) -> bool:
    """Whether an image has a tag with a version of at least two numbers."""
    _, _, tag = image.rpartition("/")[2].partition(":")
    return re.match(r"v?\d+\.\d+", tag) is not None


def test_the_image_has_the_oldest_python_that_is_supported() -> None:
    assert re.findall(r"^ARG PYTHON=(\S+)$", dockerfile(), re.MULTILINE) == [FLOOR]
    bases = re.findall(r"^FROM (\S+)", dockerfile(), re.MULTILINE)
    assert bases == ["python:${PYTHON}-slim-${DEBIAN}"] * 2


def test_the_image_installs_what_constraints_say() -> None:
    installs = re.findall(r"pip install (.*?)(?:;|\n\n|\n[A-Z])", dockerfile(), re.DOTALL)
    assert len(installs) == 3
    pinned_torch = re.search(r"torch=\$\(grep '\^torch==' constraints\.txt\)", dockerfile())
    assert pinned_torch
    for arguments in installs:
        assert "-c constraints.txt" in arguments or arguments.endswith('"$torch"'), arguments


def test_no_file_names_another_version_of_a_package() -> None:
    versions = {name.lower(): version for name, version in pinned().items()}
    for path in own_files():
        for name, version in re.findall(
            r"\b([A-Za-z][\w-]*)==([\d.]+)", path.read_text(encoding="utf-8")
        ):
            assert versions.get(name.lower()) == version, f"{path}: {name}=={version}"


def test_ray_clusters_have_our_ray() -> None:
    clusters = of_kind("RayCluster")
    assert len(clusters) == 1
    assert clusters[0]["spec"]["rayVersion"] == pinned()["ray"]


def test_every_image_is_pinned() -> None:
    assert len(images()) > 5
    assert [image for image in images() if not tag_is_pinned(image)] == []


@pytest.mark.parametrize("image", ["postgres", "postgres:latest", "host:5000/postgres", "a/b:17"])
def test_an_image_that_is_not_pinned_is_found(image: str) -> None:
    assert not tag_is_pinned(image)


def test_our_images_are_of_this_version() -> None:
    ours = [image for image in images() if image.startswith("seq2sweep")]
    assert {tag for _, _, tag in (image.partition(":") for image in ours)} == {PROJECT["version"]}
    assert f"-t seq2sweep:{PROJECT['version']} ." in dockerfile()


def test_one_postgresql_everywhere() -> None:
    assert len({image for image in images() if image.startswith("postgres")}) == 1


def test_machines_of_the_cloud_have_a_python_that_is_supported() -> None:
    text = (INFRA / "ray/aws.yaml").read_text(encoding="utf-8")
    named = re.search(r"whose Python is (\d+)\.(\d+)", text)
    assert named
    assert tuple(map(int, named.groups())) >= tuple(map(int, FLOOR.split(".")))
    installs = [
        line for line in documents(INFRA / "ray/aws.yaml")[0]["setup_commands"] if "pip" in line
    ]
    assert installs
    assert all("-c constraints.txt" in line for line in installs)
