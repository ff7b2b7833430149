"""Ray: the only folder that imports it. Training on several workers, and sweeps.

Ray reads these variables when it is imported, so they are set before any module here does so;
what the user set is left alone.
"""

import os

for _name, _value in {
    "RAY_AIR_NEW_OUTPUT": "0",  # Tune's tables; our own lines say what happens
    "RAY_ENABLE_AUTO_CONNECT": "0",  # a call after shutdown must not start a second Ray
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",  # ray.train.report waits for this poll
    "RAY_USAGE_STATS_ENABLED": "0",
    # By itself Ray starts a task that its memory monitor killed again for ever, without a word.
    # Some do fit later: it waits 1 s, then twice as long each time, a minute in all.
    "RAY_task_oom_retries": "6",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # CSV, JSON and TensorBoard copies of the journal
    # The next trial in a process fails where the one before is not out of it by then, and that may
    # have to wait for its storage.
    "TUNE_FUNCTION_THREAD_TIMEOUT_S": "600",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",  # a failed trial is told in one line
}.items():
    os.environ.setdefault(_name, _value)
