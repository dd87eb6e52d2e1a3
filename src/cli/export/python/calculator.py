"""A calculator: + - * / parentheses, rounded to two decimals. Nothing is evaluated as code."""

import math
import re

MAX_LENGTH = 200
MAX_RESULT = 1e15
# What JavaScript calls white space; Python's \s differs.
SPACE = "[\t\n\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]+"
NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?|\.[0-9]+")


class Parser:
    """expression = term (('+' | '-') term)*; term = factor (('*' | '/') factor)*; factor = number | '-' factor | '(' expression ')'."""

    def __init__(self, text):
        self.text = re.sub(SPACE, " ", text).strip(" ")
        self.at = 0

    def parse(self):
        if self.text == "":
            raise ValueError("the expression is empty")
        value = self.expression()
        if self.at < len(self.text):
            self.unexpected()
        return value

    def expression(self):
        value = self.term()
        while True:
            if self.take("+"):
                value += self.term()
            elif self.take("-"):
                value -= self.term()
            else:
                return value

    def term(self):
        value = self.factor()
        while True:
            if self.take("*"):
                value *= self.factor()
            elif self.take("/"):
                by = self.factor()
                if by == 0:
                    raise ValueError("division by zero")
                value /= by
            else:
                return value

    def factor(self):
        if self.take("-"):
            return -self.factor()
        if self.take("("):
            value = self.expression()
            if not self.take(")"):
                self.unexpected()
            return value
        found = NUMBER.match(self.text, self.at)
        if found is None:
            self.unexpected()
        self.at = found.end()
        return float(found.group())

    def take(self, symbol):
        while self.text.startswith(" ", self.at):
            self.at += 1
        if not self.text.startswith(symbol, self.at):
            return False
        self.at += 1
        return True

    def unexpected(self):
        if self.at >= len(self.text):
            raise ValueError("the expression ends too early")
        found = self.text[self.at]
        # As a lone UTF-16 code unit is encoded.
        shown = "\ufffd" if ord(found) > 0xFFFF else found
        raise ValueError(f'unexpected "{shown}" at {self.at + 1}')


def calculator(expression: str):
    """Evaluates an arithmetic expression with + - * / and parentheses.

    Args:
        expression: For example 48/2 or (3+4)*5
    """
    length = len(expression.encode("utf-16-le", "surrogatepass")) // 2
    if length > MAX_LENGTH:
        return f"Error: the expression has {length} characters, at most {MAX_LENGTH} are allowed"
    try:
        value = Parser(expression).parse()
    except ValueError as error:
        return f"Error: {error}"
    if not abs(value) <= MAX_RESULT:
        return "Error: the result is too large"
    hundredths = value * 100
    below = math.floor(hundredths)
    rounded = (below + 1 if hundredths - below >= 0.5 else below) / 100
    return str(int(rounded)) if rounded == int(rounded) else repr(rounded)
