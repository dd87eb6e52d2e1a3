"""Rewards of a JSONL task: 1 if the response agrees with the answer, else 0."""

import re
import unicodedata

REWARD = "exact"
IGNORE_CASE = False
PATTERN = ""
SEARCHED_CHARACTERS = 1000

# White space of JavaScript; strip() of Python has others.
SPACE = "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
UNSURE = "\u2423"
SIGN = r"[-\u2010-\u2013\u2212]"
DIGITS = r"(?:(?<!\.)\.)?\d+(?:['\u2019_,.\u2423]\d+)*(?:[eE][-+\u2212]?\d+)?"
NUMBER = re.compile(
    rf"((?:(?<![\w)\]]){SIGN})?)(?<!\w)(?<!\d\.)(?:[$\u20ac\u00a3\u00a5\u20b9]({SIGN}?))?({DIGITS})(?:[/\u2044]({DIGITS}))?", re.ASCII
)
# Ways to write a number, each with its decimal mark. Digits in another form, such as 3,5 or 1.2.3, have no certain value.
FORMS = [
    (re.compile(form, re.ASCII), decimal)
    for form, decimal in [
        (r"\d*(?:\.\d+)?", "."),
        (r"[1-9]\d{0,2}([,'_])\d{3}(?:\1\d{3})*(?:\.\d+)?", "."),
        (r"[1-9]\d?(?:,\d\d)+,\d{3}(?:\.\d+)?", "."),
        (r"[1-9]\d{0,2}(?:(?:\.\d{3})+|(?:'\d{3})+),\d+", ","),
        (r"[1-9]\d{0,2}(?:\.\d{3}){2,}", ","),
    ]
]
BEFORE = re.compile(r"(?:\^ ?[{(]?|[\d)]\*\*)\Z", re.ASCII)
AFTER = re.compile(r" ?\^ ?\{?[-\u2212]?\w|\*\*\d|[A-Za-z]+\d", re.ASCII)
MAX_ZEROS = 40


def improper(whole, a, b):
    """A fraction as a/b. A whole number before it is added."""
    if not whole:
        return f"{a}/{b}"
    if not re.fullmatch("[0-9]+", a) or not re.fullmatch("[0-9]+", b):
        return f"{whole} {a}/{b}"
    return f"{int(whole) * int(b) + int(a)}/{b}"


def mixed(match):
    whole, a, b = match.groups()
    return improper(whole, a, b) if int(a) < int(b) else match[0]


def power_of_ten(match):
    factor, braced, exponent = match.groups()
    return f"{'' if factor else '1'}e{braced or exponent}"


# Rewrites of text before numbers are found in it, in this order.
REWRITES = [
    (re.compile(pattern, re.ASCII), by)
    for pattern, by in [
        (r"[\uff01-\uff5e]", lambda m: chr(ord(m[0]) - 0xFEE0)),
        (r"[\u00bc-\u00be\u2150-\u215e]", lambda m: " " + unicodedata.normalize("NFKD", m[0])),
        (
            r"(?<=\d) ?((?:\\(?:text|mathrm|,) ?\{? ?)?(?:[cdkm]?m|in|ft|yd|mi|s|units?)\}?)\^\{?[23]\}?(?!\d)",
            lambda m: " " + m[1],
        ),
        (
            r"(?:(?<=(\d)) ?(?:\\times|\\cdot|[\u00d7\u00b7*x]) ?)?(?<![\d.,])10 ?\^ ?"
            r"(?:\{([-+\u2212]?\d{1,4})\}|([-+\u2212]?\d{1,4}))(?!\d|\.\d)",
            power_of_ten,
        ),
        (
            r"(?<=\d)(?:\{,\}(?=\d)|(?:\{\\,\}|,?(?:\\[!,;: ])+|\\thinspace |[\u00a0\u2009\u202f])(?=\d{3}(?!\d)))",
            lambda m: "," if re.match(r"\{?,", m[0]) else "'",
        ),
        (
            r"(?<![\w.,'\u2019])[1-9]\d{0,2}(?: \d{3})+(?!\d)",
            lambda m: m[0].replace(" ", "'" if " 0" in m[0] else UNSURE),
        ),
        (r"(?<![\w.,'/^])(\d{1,9}) ([1-9]\d{0,8})[/\u2044](\d{1,9})(?!\d|[.,/\u2044])", mixed),
        (
            r"(?:(?<!\d)(\d{1,40}) ?)?\\[dt]?frac *(?:\{([^{}]*)\}|(\d)) *(?:\{([^{}]*)\}|(\d))",
            lambda m: improper(m[1], m[2] or m[3] or "", m[4] or m[5] or ""),
        ),
    ]
]


def plain(written):
    """A number so that equal numbers are equal texts, or None if it has no certain value."""
    mantissa, _, exponent = written.replace("\u2019", "'").replace("\u2212", "-").lower().partition("e")
    decimal = next((mark for form, mark in FORMS if form.fullmatch(mantissa)), None)
    exponent = float(exponent or "0")
    if decimal is None or abs(exponent) > 2**53 - 1:
        return None
    whole, _, broken = mantissa.partition(decimal)
    whole, broken = (re.sub("[^0-9]", "", part) for part in (whole, broken))
    kept = (whole + broken).lstrip("0")
    digits = kept.rstrip("0")
    if digits == "":
        return "0"
    power = exponent - len(broken) + (len(kept) - len(digits))
    if abs(power) > MAX_ZEROS:
        return f"{digits}e{power:.17g}"
    power = int(power)
    if power >= 0:
        return digits + "0" * power
    point = len(digits) + power
    return f"{digits[:point]}.{digits[point:]}" if point > 0 else f"0.{'0' * -point}{digits}"


def last_number(text):
    """The last number of a text. None if there is none, or if it has no certain value."""
    for pattern, by in REWRITES:
        text = pattern.sub(by, text)
    found = list(NUMBER.finditer(text))
    if not found:
        return None
    start, end = found[-1].span()
    around = text[max(0, start - 1) : start] + text[end : end + 1]
    if any(unicodedata.category(one).startswith("N") and not one.isascii() for one in around):
        return None
    if BEFORE.search(text[max(0, start - 3) : start]) or AFTER.match(text[end : end + 40]):
        return None
    sign, inner, number, denominator = found[-1].groups()
    top, bottom = plain(number), "" if denominator is None else plain(denominator)
    if top is None or bottom is None:
        return None
    value = f"{top}/{bottom}" if bottom else top
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
