"""Rewards of a JSONL task: 1 if the response agrees with the answer, else 0."""

import re
import unicodedata

REWARD = "exact"
IGNORE_CASE = False
PATTERN = ""
SEARCHED_CHARACTERS = 1000

# White space of JavaScript; strip() of Python has others.
SPACE = "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
DIGITS = r"(?:[0-9]+(?:,[0-9]+)*(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
NUMBER = re.compile(
    rf"((?:(?<![\w)\]])[-\u2212])?)(?<!\w)(?:[$\u20ac\u00a3\u00a5]([-\u2212]?))?({DIGITS})(?:[/\u2044]({DIGITS}))?", re.ASCII
)
FRACTION = re.compile(r"\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}")
GROUPED = re.compile(r"(?<=[0-9])(?:\{,\}|,?\\[!,;: ]|[\u00a0\u2009\u202f])(?=[0-9]{3}(?![0-9]))")
MAX_ZEROS = 40


def plain(written):
    """A number so that equal numbers are equal texts."""
    mantissa, _, exponent = written.replace(",", "").lower().partition("e")
    whole, _, broken = mantissa.partition(".")
    kept = (whole + broken).lstrip("0")
    digits = kept.rstrip("0")
    if digits == "":
        return "0"
    power = float(exponent or "0") - len(broken) + (len(kept) - len(digits))
    if abs(power) > MAX_ZEROS:
        return f"{digits}e{power:.17g}"
    power = int(power)
    if power >= 0:
        return digits + "0" * power
    point = len(digits) + power
    return f"{digits[:point]}.{digits[point:]}" if point > 0 else f"0.{'0' * -point}{digits}"


def last_number(text):
    """The last number of a text, or None."""
    found = list(NUMBER.finditer(FRACTION.sub(r"\1/\2", GROUPED.sub(",", text))))
    if not found:
        return None
    sign, inner, number, denominator = found[-1].groups()
    value = plain(number) + ("" if denominator is None else f"/{plain(denominator)}")
    return f"-{value}" if (sign or inner) and value != "0" else value


def clean(text):
    """The text as it is compared."""
    trimmed = unicodedata.normalize("NFC", text).strip(SPACE)
    return trimmed.lower() if IGNORE_CASE else trimmed


def is_right(response, answer):
    if REWARD == "contains":
        return clean(answer) in clean(response)
    if REWARD == "number":
        number = last_number(response)
        return number is not None and number == last_number(answer)
    if REWARD == "regex":
        found = list(re.finditer(PATTERN, response[-SEARCHED_CHARACTERS:]))
        if not found:
            return False
        text = found[-1].group(1 if found[-1].re.groups > 0 else 0)
        return text is not None and clean(text) == clean(answer)
    return clean(response) == clean(answer)


def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    """The score of one response."""
    return 1.0 if is_right(solution_str, ground_truth) else 0.0
