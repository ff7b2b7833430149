"""What the stages of `pipeline/` share: where files lie, how one starts and ends, trainings and
their scores; and what `make reproduce` says at its end."""
