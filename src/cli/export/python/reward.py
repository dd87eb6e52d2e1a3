"""GSM8K's strict rule: the last "#### N" of the answer must be the reference, as text."""

import re

FORMAT_SCORE = 0.0
SEARCHED_CHARACTERS = 300


def extract_answer(text):
    """The last answer line's number without commas, or None."""
    found = re.findall(r"#### (-?[0-9.,]+)", text[-SEARCHED_CHARACTERS:])
    return found[-1].replace(",", "") if found else None


def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    """1 for the right answer, FORMAT_SCORE for a wrong one in the right form, else 0."""
    answer = extract_answer(solution_str)
    if answer is None:
        return 0.0
    return 1.0 if answer == ground_truth else float(FORMAT_SCORE)
