"""Runs train.py of an exported run in its folder. Appends each record that TRL logs, with seconds by phase, as a JSON line: timed.py LOG."""

import functools
import json
import os
import runpy
import sys
import time

import trl
from transformers import TrainerCallback

LOG = os.path.abspath(sys.argv[1])
spent = {}


def timed(name):
    """Adds up the seconds of a method of GRPOTrainer."""
    method = getattr(trl.GRPOTrainer, name)

    @functools.wraps(method)
    def run(*args, **kwargs):
        started = time.perf_counter()
        try:
            return method(*args, **kwargs)
        finally:
            spent[name] = spent.get(name, 0.0) + time.perf_counter() - started

    setattr(trl.GRPOTrainer, name, run)


class Writer(TrainerCallback):
    """Evaluations are between the end of a step and the start of the next."""

    def on_step_begin(self, args, state, control, **kwargs):
        spent.clear()
        self.started = time.perf_counter()

    def on_step_end(self, args, state, control, **kwargs):
        generation = spent.get("_generate", 0.0)
        scored = spent.get("_generate_and_score_completions", 0.0)
        step = time.perf_counter() - self.started
        self.seconds = {"step": step, "generation": generation, "update": step - scored}

    def on_log(self, args, state, control, logs=None, **kwargs):
        record = {"step": state.global_step, **(logs or {})}
        if "grad_norm" in record:
            record["seconds"] = self.seconds
        with open(LOG, "a") as file:
            file.write(json.dumps(record, default=float) + "\n")


timed("_generate")
timed("_generate_and_score_completions")
init = trl.GRPOTrainer.__init__


def with_writer(self, *args, **kwargs):
    init(self, *args, **kwargs)
    self.add_callback(Writer())


trl.GRPOTrainer.__init__ = with_writer
sys.path.insert(0, os.getcwd())
runpy.run_path("train.py", run_name="__main__")
