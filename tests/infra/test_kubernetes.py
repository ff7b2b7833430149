"""The manifests: fields that exist, pods that are confined, and who may talk to whom."""

from __future__ import annotations

import copy
import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml
from ray.autoscaler._private.kuberay import node_provider

from tests.infra.files import INFRA, Pod, documents, kubernetes_objects, of_kind, pods

# The fields of KubeRay 1.6.2's objects (its CRD API reference) that are ours to use.
FIELDS = {
    "RayCluster": {
        "authOptions", "autoscalerOptions", "enableInTreeAutoscaling", "gcsFaultToleranceOptions",
        "headGroupSpec", "headServiceAnnotations", "managedBy", "rayVersion", "suspend",
        "upgradeStrategy", "workerGroupSpecs",
    },
    "RayJob": {
        "activeDeadlineSeconds", "backoffLimit", "clusterSelector", "deletionStrategy",
        "entrypoint", "entrypointNumCpus", "entrypointNumGpus", "entrypointResources", "jobId",
        "managedBy", "metadata", "preRunningDeadlineSeconds", "rayClusterSpec", "runtimeEnvYAML",
        "shutdownAfterJobFinishes", "submissionMode", "submitterConfig", "submitterPodTemplate",
        "suspend", "ttlSecondsAfterFinished",
    },
    "headGroupSpec": {
        "enableIngress", "headService", "labels", "rayStartParams", "resources", "serviceType",
        "template",
    },
    "workerGroupSpecs": {
        "groupName", "idleTimeoutSeconds", "labels", "maxReplicas", "minReplicas", "numOfHosts",
        "rayStartParams", "replicas", "resources", "scaleStrategy", "suspend", "template",
    },
    "autoscalerOptions": {
        "env", "envFrom", "idleTimeoutSeconds", "image", "imagePullPolicy", "resources",
        "securityContext", "upscalingMode", "version", "volumeMounts",
    },
    "authOptions": {"enableK8sTokenAuth", "mode", "secretName"},
}  # fmt: skip

# kustomize cannot run everywhere; what it would make of the job's cluster is the cluster's spec.
CLUSTER = of_kind("RayCluster")[0]["spec"]
JOB = of_kind("RayJob")[0]["spec"]


def pod_faults(pod: Pod) -> list[str]:
    """What is not as docs/security.md promises of every pod."""
    context = pod.spec.get("securityContext", {})
    found = {
        "may be root": context.get("runAsNonRoot") is not True or not context.get("runAsUser"),
        "has no seccomp profile": context.get("seccompProfile") != {"type": "RuntimeDefault"},
        "is on the host's network": bool(pod.spec.get("hostNetwork") or pod.spec.get("hostPID")),
        "mounts a folder of the host": any("hostPath" in v for v in pod.spec.get("volumes", [])),
    }
    for container in pod.spec["containers"]:
        confined = container.get("securityContext", {})
        resources = container.get("resources", {})
        found |= {
            "may gain privileges": confined.get("allowPrivilegeEscalation") is not False,
            "is privileged": bool(confined.get("privileged")),
            "may write to its root": confined.get("readOnlyRootFilesystem") is not True,
            "has capabilities": confined.get("capabilities") != {"drop": ["ALL"]},
            "has no limits": not {"cpu", "memory"}
            <= set(resources.get("limits", {})) & set(resources.get("requests", {})),
        }
    return [what for what, bad in found.items() if bad]


@pytest.mark.parametrize("pod", pods(), ids=lambda pod: pod.name)
def test_pods_are_confined(pod: Pod) -> None:
    assert pod_faults(pod) == []


def test_all_pods_were_found() -> None:
    assert {pod.name.strip() for pod in pods()} == {
        "Deployment mlflow", "StatefulSet postgres", "RayCluster seq2sweep head",
        "RayCluster seq2sweep cpu", "RayCluster seq2sweep gpu", "RayJob repro submitter",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("plant", "fault"),
    [
        (lambda s: s["securityContext"].update(runAsUser=0), "may be root"),
        (lambda s: s.pop("securityContext"), "may be root"),
        (lambda s: s.update(hostNetwork=True), "is on the host's network"),
        (lambda s: s["volumes"].append({"hostPath": {"path": "/"}}), "mounts a folder of the host"),
        (lambda s: s["containers"][0]["securityContext"].pop("capabilities"), "has capabilities"),
        (lambda s: s["containers"][0]["resources"].pop("limits"), "has no limits"),
        (
            lambda s: s["containers"][0]["securityContext"].update(readOnlyRootFilesystem=False),
            "may write to its root",
        ),
    ],
)
def test_a_planted_fault_is_found(plant: Callable[[dict[str, Any]], Any], fault: str) -> None:
    pod = copy.deepcopy(pods()[0])
    plant(pod.spec)
    assert fault in pod_faults(pod)


def test_fields_are_kuberays() -> None:
    assert set(CLUSTER) <= FIELDS["RayCluster"]
    assert set(JOB) <= FIELDS["RayJob"]
    for name in ("headGroupSpec", "autoscalerOptions", "authOptions"):
        assert set(CLUSTER[name]) <= FIELDS[name]
    for group in CLUSTER["workerGroupSpecs"]:
        assert set(group) <= FIELDS["workerGroupSpecs"]
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    for parameters in (CLUSTER["headGroupSpec"]["rayStartParams"],):
        assert all(isinstance(value, str) for value in parameters.values())


def test_ray_wants_a_token() -> None:
    assert CLUSTER["authOptions"] == {"mode": "token", "secretName": "seq2sweep-ray"}
    assert CLUSTER["headGroupSpec"]["serviceType"] == "ClusterIP"
    assert CLUSTER["headGroupSpec"]["enableIngress"] is False
    (submitter,) = JOB["submitterPodTemplate"]["spec"]["containers"]
    token = next(each for each in submitter["env"] if each["name"] == "RAY_AUTH_TOKEN")
    assert token["valueFrom"]["secretKeyRef"] == {"name": "seq2sweep-ray", "key": "auth_token"}


def test_jobs_have_no_account_of_kubernetes_and_the_autoscaler_has() -> None:
    """By its account KubeRay lets the autoscaler change pods: their images, which have secrets."""
    for pod in pods():
        assert pod.spec["automountServiceAccountToken"] is False, pod.name
    accounts = {
        (pod.name, volume["name"]): volume["projected"]["sources"]
        for pod in pods()
        for volume in pod.spec.get("volumes", [])
        if "projected" in volume
    }
    [((pod_name, name), sources)] = accounts.items()
    assert pod_name == "RayCluster seq2sweep head"
    (head,) = CLUSTER["headGroupSpec"]["template"]["spec"]["containers"]
    assert name not in [mount["name"] for mount in head["volumeMounts"]]
    (mount,) = (m for m in CLUSTER["autoscalerOptions"]["volumeMounts"] if m["name"] == name)
    assert mount["readOnly"] is True
    token, authority = sources[0]["serviceAccountToken"], sources[1]["configMap"]
    assert f"{mount['mountPath']}/{token['path']}" == node_provider.IN_CLUSTER_TOKEN_PATH
    assert authority["name"] == "kube-root-ca.crt"  # Kubernetes puts it into each namespace
    (item,) = authority["items"]
    assert f"{mount['mountPath']}/{item['path']}" == node_provider.IN_CLUSTER_CA_CERT_PATH


def test_a_job_ends_some_time_and_takes_its_cluster_with_it() -> None:
    assert JOB["shutdownAfterJobFinishes"] is True
    assert 0 < JOB["activeDeadlineSeconds"] <= 86400
    assert 0 < JOB["ttlSecondsAfterFinished"] <= 3600
    assert JOB["backoffLimit"] > 0
    assert "rayClusterSpec" not in JOB  # kustomize puts the one of RayCluster there


def test_workers_come_and_go_and_some_have_gpus() -> None:
    assert CLUSTER["enableInTreeAutoscaling"] is True
    gpus = [
        container["resources"]["limits"].get("nvidia.com/gpu", 0)
        for group in CLUSTER["workerGroupSpecs"]
        for container in group["template"]["spec"]["containers"]
    ]
    assert sorted(gpus) == [0, 1]


def test_nothing_is_published() -> None:
    services = of_kind("Service")
    assert {service["metadata"]["name"] for service in services} == {"mlflow", "postgres"}
    for service in services:
        assert service["spec"].get("type", "ClusterIP") == "ClusterIP"
    assert of_kind("Ingress", "HTTPRoute", "Gateway", "Secret") == []
    (quota,) = of_kind("ResourceQuota")
    assert quota["spec"]["hard"]["services.loadbalancers"] == "0"


def test_the_shared_folder_is_mounted_by_all_ray_nodes() -> None:
    claims = {each["metadata"]["name"]: each["spec"] for each in of_kind("PersistentVolumeClaim")}
    assert claims["storage"]["accessModes"] == ["ReadWriteMany"]
    for pod in pods(of_kind("RayCluster")):
        mounts = {m["name"]: m["mountPath"] for m in pod.spec["containers"][0]["volumeMounts"]}
        assert mounts["storage"] == "/storage"
        volume = next(v for v in pod.spec["volumes"] if v["name"] == "storage")
        assert volume["persistentVolumeClaim"] == {"claimName": "storage"}


# --- who may talk to whom ------------------------------------------------------------------------

POLICIES = {each["metadata"]["name"]: each["spec"] for each in of_kind("NetworkPolicy")}


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    wanted = selector.get("matchLabels", {})
    return all(labels.get(key) == value for key, value in wanted.items())


def may(sender: dict[str, str], receiver: dict[str, str], port: int) -> bool:
    """Whether policies let a pod of the namespace open a connection to another one's port."""

    def allowed(direction: str, own: dict[str, str], other: dict[str, str]) -> bool:
        side = "from" if direction == "ingress" else "to"
        return any(
            (not rule.get("ports") or port in [each["port"] for each in rule["ports"]])
            and any(
                "podSelector" in peer
                and "namespaceSelector" not in peer
                and selects(peer["podSelector"], other)
                for peer in rule.get(side, [])
            )
            for policy in POLICIES.values()
            if selects(policy["podSelector"], own)
            for rule in policy.get(direction, [])
        )

    return allowed("egress", sender, receiver) and allowed("ingress", receiver, sender)


def label(name: str, component: str = "") -> dict[str, str]:
    part = {"app.kubernetes.io/component": component} if component else {}
    return {"app.kubernetes.io/name": name} | part


HEAD, WORKER = label("ray", "head"), label("ray", "worker")
MLFLOW, POSTGRES, SUBMITTER = label("mlflow"), label("postgres"), label("ray-submitter")
ALLOWED = [
    (HEAD, WORKER, 12345),
    (WORKER, HEAD, 6379),
    (WORKER, WORKER, 12345),
    (HEAD, MLFLOW, 5000),
    (MLFLOW, POSTGRES, 5432),
    (SUBMITTER, HEAD, 8265),
]
REFUSED = [
    (WORKER, MLFLOW, 5000),
    (HEAD, POSTGRES, 5432),
    (WORKER, POSTGRES, 5432),
    (SUBMITTER, HEAD, 6379),
    (SUBMITTER, WORKER, 12345),
    (SUBMITTER, MLFLOW, 5000),
    (MLFLOW, HEAD, 8265),
    (POSTGRES, MLFLOW, 5000),
    ({}, HEAD, 8265),
    ({}, MLFLOW, 5000),
]


@pytest.mark.parametrize(("sender", "receiver", "port"), ALLOWED)
def test_who_must_talk_may(sender: dict[str, str], receiver: dict[str, str], port: int) -> None:
    assert may(sender, receiver, port)


@pytest.mark.parametrize(("sender", "receiver", "port"), REFUSED)
def test_who_need_not_talk_may_not(
    sender: dict[str, str], receiver: dict[str, str], port: int
) -> None:
    assert not may(sender, receiver, port)


def test_nobody_may_unless_a_policy_says_so() -> None:
    assert POLICIES["nobody"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    named = [each for name, each in POLICIES.items() if name not in ("nobody", "names")]
    for pod in pods():
        assert any(selects(policy["podSelector"], pod.labels) for policy in named), pod.name
    # The internet is the head's alone unless one asks for object storage, and never its cloud's
    # credentials.
    outside = {
        name: peer["ipBlock"]
        for name, policy in POLICIES.items()
        for rule in policy.get("egress", [])
        for peer in rule["to"]
        if "ipBlock" in peer
    }
    assert outside.pop("names") == {"cidr": "169.254.20.10/32"}  # a node's own cache of names
    assert set(outside) == {"ray-head", "object-storage"}
    assert all("169.254.169.254/32" in block["except"] for block in outside.values())
    asked_for = documents(INFRA / "kubernetes/object-storage/kustomization.yaml")[0]
    assert asked_for["resources"] == ["network.yaml"]
    standing = documents(INFRA / "kubernetes/kustomization.yaml")[0]["resources"]
    assert not [name for name in standing if "object-storage" in name]


def test_names_are_asked_of_the_cluster_and_of_the_nodes_cache() -> None:
    to_pods, to_cache = POLICIES["names"]["egress"]
    assert to_pods["to"][0]["podSelector"]["matchLabels"] == {"k8s-app": "kube-dns"}
    for rule in (to_pods, to_cache):
        assert sorted(each["protocol"] for each in rule["ports"]) == ["TCP", "UDP"]
        assert {each["port"] for each in rule["ports"]} == {53}


# --- machines ------------------------------------------------------------------------------------

UNITS = {"Mi": 2**20, "Gi": 2**30}


def quantity(text: str) -> int:
    """Bytes of a Kubernetes quantity such as 2Gi."""
    return int(text[:-2]) * UNITS[text[-2:]]


def ray_groups(cluster: dict[str, Any]) -> list[dict[str, Any]]:
    return [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]


def memory_faults(group: dict[str, Any]) -> list[str]:
    """Shared memory counts as the container's, and Ray's object store lies in it."""
    spec = group["template"]["spec"]
    (container,) = spec["containers"]
    shared = sum(
        quantity(volume["emptyDir"]["sizeLimit"])
        for volume in spec["volumes"]
        if volume.get("emptyDir", {}).get("medium") == "Memory"
    )
    objects = int(group["rayStartParams"].get("object-store-memory", 2**60))
    found = {
        "little memory is left beside the shared": shared
        > quantity(container["resources"]["requests"]["memory"]) / 2,
        "no room for Ray's objects": objects > 0.9 * shared,
    }
    return [what for what, bad in found.items() if bad]


def test_a_containers_memory_holds_its_shared_memory() -> None:
    assert [memory_faults(group) for group in ray_groups(CLUSTER)] == [[], [], []]
    planted = copy.deepcopy(CLUSTER["workerGroupSpecs"][0])
    planted["template"]["spec"]["volumes"][-1]["emptyDir"]["sizeLimit"] = "8Gi"
    assert memory_faults(planted) == ["little memory is left beside the shared"]
    planted["rayStartParams"] = {}
    assert memory_faults(planted)[-1] == "no room for Ray's objects"


def test_images_of_ones_own_registry_can_be_pulled_onto_machines_that_run_them() -> None:
    for pod in pods():
        ours = any(each["image"].startswith("seq2sweep") for each in pod.spec["containers"])
        assert pod.spec.get("imagePullSecrets") == (
            [{"name": "seq2sweep-registry"}] if ours else None
        ), pod.name
        assert ("kubernetes.io/arch" in pod.spec.get("nodeSelector", {})) is ours, pod.name


def test_changed_code_is_pulled_also_where_an_earlier_image_is() -> None:
    """By its name alone a pod takes what its machine has."""
    containers = [each for pod in pods() for each in pod.spec["containers"]]
    ours = [each for each in containers if each["image"].startswith("seq2sweep")]
    assert len(ours) == 5
    for container in [*ours, CLUSTER["autoscalerOptions"]]:  # it has the head's image
        assert container.get("imagePullPolicy") == "Always", container


def test_workers_may_run_on_spot_machines_and_nothing_else_may() -> None:
    for pod in pods():
        keys = {each["key"] for each in pod.spec.get("tolerations", [])}
        spot = {"kubernetes.azure.com/scalesetpriority", "cloud.google.com/gke-spot"}
        assert (keys >= spot) is (pod.labels == WORKER), pod.name
        assert keys & spot in (set(), spot)


def test_the_head_is_not_moved_while_it_works() -> None:
    (budget,) = of_kind("PodDisruptionBudget")
    # Kubernetes takes no other kind of number for pods of a controller that it does not know.
    assert budget["spec"]["minAvailable"] == 1
    kept = [pod.name for pod in pods() if selects(budget["spec"]["selector"], pod.labels)]
    assert kept == ["RayCluster seq2sweep head"]
    head = CLUSTER["headGroupSpec"]["template"]["metadata"]["annotations"]
    assert head["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "false"
    for group in CLUSTER["workerGroupSpecs"]:
        assert "annotations" not in group["template"]["metadata"]


# --- by tools, where they are --------------------------------------------------------------------


def built(folder: str) -> list[dict[str, Any]]:
    """What `kubectl apply -k` would send."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")
    done = subprocess.run(
        [kubectl, "kustomize", str(INFRA / "kubernetes" / folder)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def test_kustomize_builds_what_stands_by() -> None:
    objects = built("")
    names = {(each["kind"], each["metadata"]["name"]) for each in objects}
    in_files = [each for each in kubernetes_objects() if not each["kind"].startswith("Ray")]
    asked_for = built("object-storage")
    assert [each["metadata"]["name"] for each in asked_for] == ["object-storage"]
    in_files = [each for each in in_files if each["metadata"]["name"] != "object-storage"]
    assert names == {(each["kind"], each["metadata"]["name"]) for each in in_files}
    for each in objects:
        assert each["kind"] == "Namespace" or each["metadata"]["namespace"] == "seq2sweep"


def test_kustomize_gives_the_job_the_clusters_spec() -> None:
    (cluster,) = built("cluster")
    (job,) = built("job")
    assert job["kind"] == "RayJob"
    assert job["spec"]["rayClusterSpec"] == cluster["spec"]
    assert {pod.name for pod in pods([job]) if pod_faults(pod)} == set()


def _api_objects() -> Iterator[dict[str, Any]]:
    """Objects and pods that Kubernetes itself knows."""
    for each in kubernetes_objects():
        if not each["kind"].startswith("Ray"):
            yield each
    for pod in pods():
        metadata = {"name": "pod", "labels": pod.labels}
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod.spec}


def test_every_field_is_in_kubernetes_own_schema() -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    for each in _api_objects():
        kubernetes_validate.validate(each, "1.32", strict=True)
