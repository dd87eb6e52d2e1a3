"""The reward of TASK, to be written in Python: the run computed it in JavaScript."""


def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    """The score of one response."""
    raise NotImplementedError("The reward of TASK is JavaScript. Write it here in Python; data/*.jsonl has all fields of the problems.")
