"""Every private name of Ray that this project uses, each with the reason: nothing public does it.

The names are those of the version in constraints.txt. Where another version lacks one, the function
that needs it raises ImportError or AttributeError, which says the name; none is passed over in
silence. What belongs to Ray Train, Ray Tune or jobs is imported where it is used: the three take
100 MB of memory and a second, in each process that works for something else.
"""

from __future__ import annotations

import contextlib
import io
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import ray
from ray._private import node, ray_constants, services
from ray._private.authentication import authentication_token_setup
from ray._private.grpc_utils import init_grpc_channel
from ray._private.utils import get_dashboard_dependency_error
from ray.core.generated import gcs_pb2
from ray.core.generated.gcs_service_pb2 import GetClusterIdRequest
from ray.core.generated.gcs_service_pb2_grpc import NodeInfoGcsServiceStub
from ray.util.placement_group import PlacementGroup, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from seq2sweep.cluster import failures
from seq2sweep.errors import NO_ROOM, UserError

CHANGES_NO_RESULT = "how Ray is started, watched and ended"

LOOPBACK = "127.0.0.1"
SETTLE_SECONDS = 5.0
"""How long a start with fewer workers than wanted waits: those before may not have left yet."""
CONNECT_SECONDS = 5.0
"""How long a server of Ray's may take to accept a connection."""


def _replace(owner: Any, name: str, value: Any) -> Any:
    """Set what Ray calls `name`, which it must have, to another value; gives the one before."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    return before


@contextlib.contextmanager
def _replaced(owner: Any, **values: Any) -> Iterator[None]:
    before = {name: _replace(owner, name, value) for name, value in values.items()}
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


# --- a Ray of our own ----------------------------------------------------------------------------


def start_on_loopback(folder: str, **options: Any) -> None:
    """`ray.init` with its files in `folder`, and all its servers on the loopback interface alone.

    By itself Ray puts the machine's own address in the place of the one that it is given, and then
    most of its servers listen on all interfaces. On Windows and macOS it does not:
    ENABLE_RAY_CLUSTER is the switch for that.
    """
    with _replaced(ray_constants, ENABLE_RAY_CLUSTER=False):
        init(address="local", _temp_dir=folder, _node_ip_address=LOOPBACK, **options)


def init(**options: Any) -> None:
    """`ray.init`, and nothing more. Under `uv run` Ray would upload the whole folder that this
    process is in, secrets too, and start workers in an environment that uv makes of it."""
    with _replaced(ray_constants, RAY_ENABLE_UV_RUN_RUNTIME_ENV=False):
        ray.init(**options)


@contextlib.contextmanager
def waits_of_start(wait: Callable[[str, Callable[[], Any]], Any]) -> Iterator[None]:
    """Ray's two waits for a server that it has started are done by `wait(server, look)`.

    look: raises RuntimeError until the server is ready. They have no setting: one gives up after
    30 s, and the other does not notice that the process is gone.
    """
    port, info = node.wait_for_persisted_port, services.get_node

    def wait_for_port(*named: Any, **how: Any) -> Any:
        return wait("gcs_server", lambda: port(*named, **{**how, "timeout_ms": 1000}))

    def wait_for_node(*named: Any) -> Any:
        return wait("raylet", lambda: info(*named))

    ports = _replaced(node, wait_for_persisted_port=wait_for_port)
    with ports, _replaced(services, get_node=wait_for_node):
        yield


def kill_servers_at_shutdown() -> None:
    """`ray.shutdown` kills this process's servers at once. A SIGTERM first, as Ray sends, costs a
    second for each, as they hold it back."""
    own = ray._private.worker._global_node
    if own is not None:
        kill = own.kill_all_processes
        _replace(own, "kill_all_processes", lambda **how: kill(check_alive=False))


def dead_servers() -> list[tuple[str, int]]:
    """Name and exit status of each process of Ray that this one has started and that has ended."""
    own = ray._private.worker._global_node
    dead = own.dead_processes() if own is not None else ()
    return [(name, process.returncode) for name, process in dead]


def session_folder() -> str:
    """Where the Ray of this process keeps its logs and sockets."""
    return str(ray._private.worker._global_node.get_session_dir_path())


@contextlib.contextmanager
def losses_not_printed() -> Iterator[None]:
    """Without the pages that Ray prints here of each node and process that it has lost.

    `log_to_driver=False` leaves them. What was lost is said in a line by whoever needed it.
    """
    with _replaced(ray._private.worker, print_to_stdstream=lambda *data, **how: None):
        yield


def free_resources() -> list[dict[str, float]]:
    """What each live node has left where something may start: not on those that are about to be
    taken away. Ray's public function gives the sum over all of them."""
    leaving = ray._private.state.state.get_draining_nodes()
    free = ray._private.state.available_resources_per_node()
    return [left for name, left in free.items() if name not in leaving]


def dashboard_fault() -> str | None:
    """What ray[default], which serves jobs, lacks on this machine; None where nothing."""
    missing = get_dashboard_dependency_error()
    return None if missing is None else str(missing)


# --- tokens and joining --------------------------------------------------------------------------


def read_token_again() -> None:
    """Have Ray forget the settings and the token that it has read from the environment."""
    ray._raylet.Config.initialize("")
    ray._raylet.AuthenticationTokenLoader.instance().reset_cache()


def use_token_of_user() -> None:
    """Show the token that lies in the user's folder, if any, as `ray.init` does."""
    authentication_token_setup.maybe_enable_token_auth_if_token_available(warn_if_disabled=False)


def wants_token(channel: grpc.Channel, seconds: float) -> bool:
    """Whether the Ray behind a channel refuses who shows no token, as this call does; raises
    ConnectionError where it does not say."""
    try:
        NodeInfoGcsServiceStub(channel).GetClusterId(GetClusterIdRequest(), timeout=seconds)
    except grpc.RpcError as error:
        if error.code() == grpc.StatusCode.UNAUTHENTICATED:
            return True
        raise ConnectionError(f"{error.code().name}: {error.details()}") from None
    return False


def check_head(address: str, connect: float, reply: float) -> None:
    """Find out whether Ray answers at an address, as `ray.init` takes it, and takes our token.

    `ray.init` would try for minutes; this takes a minute at most. Raises OSError, ValueError or
    OverflowError, and AuthenticationError or RpcError of ray.exceptions.
    """
    resolved = services.canonicalize_bootstrap_address(address) or ""
    host, _, port = resolved.rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port)), timeout=connect):
        pass
    # Whoever shows one asks for it as well: a cluster without could not call back, and every
    # actor that this process makes would be gone before it began.
    if wants_token(init_grpc_channel(resolved, ray_constants.GLOBAL_GRPC_OPTIONS), reply):
        use_token_of_user()
    ray._raylet.GcsClient(address=resolved)  # Ray's own answer, to who shows a token


def job_client(address: str, timeout: tuple[float, float]) -> Any:
    """A JobSubmissionClient that waits so many seconds for a connection and an answer. Ray's own
    takes no timeout, and would wait for ever."""
    from ray.job_submission import JobSubmissionClient

    class Client(JobSubmissionClient):  # type: ignore[misc]
        def _do_request(self, method: str, endpoint: str, data: Any = None, **more: Any) -> Any:
            # As a file: bytes go out in one call, which must end within the limit of a connection.
            data = data and io.BytesIO(data)
            return super()._do_request(method, endpoint, data=data, timeout=timeout, **more)

    return Client(address)


# --- tables of Ray's control service (GCS) -------------------------------------------------------
# Ray's public functions do not say whose a placement group is, so the tables are read here.


def remove_orphans() -> int:
    """Remove this job's placement groups whose creator is dead; gives how many there were.

    Ray Train's controller makes one for its workers. When it is killed Ray keeps the group, and
    with it the CPUs, until the driver ends: the next controller would wait for them for ever.
    """
    orphans = [group for group in _groups() if _is_orphan(group)]
    for group in orphans:
        remove_placement_group(PlacementGroup(ray.PlacementGroupID(group.placement_group_id)))
    return len(orphans)


def has_room(controller: str) -> bool:
    """Whether the actor with this id (hex) has got a placement group, so waits for none."""
    created = gcs_pb2.PlacementGroupTableData.CREATED
    return any(
        group.creator_actor_id.hex() == controller and group.state == created for group in _groups()
    )


def live_workers(controller: str) -> int:
    """The training workers of the actor with this id (hex) that have started and live."""
    owner = _actor(bytes.fromhex(controller))
    if owner is None:
        return 0
    table = _accessor().get_actor_table(ray._private.worker.global_worker.current_job_id, "ALIVE")
    actors = map(gcs_pb2.ActorTableData.FromString, table)
    owners = [a.owner_address.worker_id for a in actors if a.class_name == "RayTrainWorker"]
    return owners.count(owner.address.worker_id)


def _groups() -> list[Any]:
    """The placement groups of this job that are there or asked for."""
    table = _accessor().get_placement_group_table()
    job = ray._private.worker.global_worker.current_job_id.binary()
    removed = gcs_pb2.PlacementGroupTableData.REMOVED
    groups = map(gcs_pb2.PlacementGroupTableData.FromString, table)
    return [group for group in groups if group.creator_job_id == job and group.state != removed]


def _is_orphan(group: Any) -> bool:
    if ray.ActorID(group.creator_actor_id).is_nil():  # a driver made it: Tune, for a trial
        return False
    creator = _actor(group.creator_actor_id)
    return creator is None or creator.state == gcs_pb2.ActorTableData.DEAD


def _actor(actor: bytes) -> Any:
    found = _accessor().get_actor_info(ray.ActorID(actor))
    return None if found is None else gcs_pb2.ActorTableData.FromString(found)


def _accessor() -> Any:
    return ray._private.state.state._connect_and_get_accessor()


# --- Ray Train -----------------------------------------------------------------------------------


def tell_controller(
    trainer: Any, told: Callable[[Any, str], None], alone: bool, room: Callable[[], int] | None
) -> None:
    """Have a trainer's `fit` give `told` its controller, an actor, and that actor's id (hex).

    Ray keeps it to itself, and Ctrl-C as well. Two actors that take seconds to start and have
    nothing to do are left out: the one for Ray's data sets and, in a Ray that ends with this
    process (alone), the one that clears up on a cluster after a driver. room: as of `_elastic`;
    None where the number of workers is fixed.
    """
    from ray.train.v2._internal.callbacks import DatasetsCallback
    from ray.train.v2._internal.callbacks.placement_group_callback import (
        PlacementGroupCleanerCallback,
    )
    from ray.train.v2._internal.constants import get_env_vars_to_propagate
    from ray.train.v2._internal.execution.controller import TrainController

    idle = (DatasetsCallback, *([PlacementGroupCleanerCallback] if alone else []))

    def callbacks() -> list[Any]:
        return [callback for callback in made() if not isinstance(callback, idle)]

    def run(**settings: Any) -> Any:
        if room is not None:
            settings["scaling_policy"] = _elastic(trainer.scaling_config, room)
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        env = {"RAY_WARN_BLOCKING_GET_INSIDE_ASYNC": "0"} | get_env_vars_to_propagate()
        remote = ray.remote(num_cpus=0, scheduling_strategy=here, runtime_env={"env_vars": env})
        controller = remote(TrainController).remote(**settings)
        told(controller, controller._actor_id.hex())
        ray.get(controller.run.remote())
        return ray.get(controller.get_result.remote())

    made = _replace(trainer, "_create_default_callbacks", callbacks)
    _replace(trainer, "_initialize_and_run_controller", run)


def _elastic(config: Any, room: Callable[[], int]) -> Any:
    """Ray's policy for workers whose number may change, but for two things.

    It starts as many as `room()`, asked in the controller, says. Ray counts what it has set aside
    for this training, free or not: nothing while older requests want all, even a dead driver's. And
    to start more it ends none that train, with all steps since a checkpoint: they save first.
    """
    from ray.train.v2._internal.execution.scaling_policy import ElasticScalingPolicy, NoopDecision

    class Elastic(ElasticScalingPolicy):  # type: ignore[misc]
        began = time.monotonic()

        def _count_possible_workers(self, reserved: Any) -> int:
            count = min(config.max_workers, room())
            settled = time.monotonic() - self.began >= SETTLE_SECONDS
            return count if settled or count == config.max_workers else 0

        def make_decision_for_running_worker_group(self, *about: Any, **more: Any) -> Any:
            self._maybe_send_resource_request()
            return NoopDecision()

    return Elastic(config)


def get_train_context() -> Any:
    """Of this training worker, with its `preemption_context`: whether its node is to be taken away.

    In Ray's public function for that all workers would wait for each other.
    """
    from ray.train.v2._internal.execution import context

    return context.get_train_context()


def set_torch_variables() -> None:
    """Set RANK, WORLD_SIZE and the like in this training worker, as Ray's own backend does."""
    from ray.train.torch.config import _set_torch_distributed_env_vars

    _set_torch_distributed_env_vars()


# --- Ray Tune ------------------------------------------------------------------------------------


@contextlib.contextmanager
def trials_fail_alone(errors: dict[str, Exception], told: Callable[[], None]) -> Iterator[None]:
    """What fails a trial ends no sweep; each trial's last error is kept in `errors`, by its id.

    A process that Ray's memory monitor killed is the death of a trial, to be tried again: Ray says
    OutOfMemoryError then, where Tune knows RayActorError and RayTaskError only, and ends the whole
    sweep. So it does where a full disk does not take a file of its own; `told` hears of it. What
    the user must mend, as that a training diverges, is not tried again: it would come again.
    """
    from ray.air.execution._internal import RayActorManager
    from ray.tune.execution.tune_controller import TuneController
    from ray.tune.experiment import Trial

    def translating(failed: Callable[..., None]) -> Callable[..., None]:
        def called(manager: Any, *, exception: Exception, **about: Any) -> None:
            failed(manager, exception=failures.as_actor_error(exception), **about)

        return called

    def telling(write: Callable[..., None]) -> Callable[..., None]:
        def called(owner: Any, *given: Any, **how: Any) -> None:
            try:
                write(owner, *given, **how)
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                told()

        return called

    def keep_error(trial: Any, error: Exception | None = None) -> None:
        if error is None or errors.get(trial.trial_id) is not error:  # of a reset it is told twice
            handle_error(trial, error)
        if error is not None:
            errors[trial.trial_id] = error
            if isinstance(failures.raised(error), UserError):
                trial.run_metadata.num_failures = trial.max_failures + 1

    handle_error = telling(Trial.handle_error)
    with (
        _replaced(
            RayActorManager,
            _actor_task_failed=translating(RayActorManager._actor_task_failed),
            _actor_start_failed=translating(RayActorManager._actor_start_failed),
        ),
        _replaced(TuneController, checkpoint=telling(TuneController.checkpoint)),
        _replaced(Trial, handle_error=keep_error),
    ):
        yield


def pause_failed_trial(controller: Any, trial: Any) -> None:
    """As Tune's controller books it, which would wait for ever for a process that it resets."""
    controller._resetting_trials.discard(trial)
    controller._set_trial_status(trial, trial.PAUSED)
