/** The Python that an export writes: reward and calculator, free of any trainer, and what wraps them for one. */

import type { Shaping } from '../../tasks/gsm8k/reward.ts';

/** verl's strict GSM8K rule as `src/tasks/gsm8k/reward.ts` has it, in verl's signature of a custom reward function. */
export function gsm8kRewardPython({ formatScore }: Shaping): string {
  return `"""GSM8K's strict rule: the last "#### N" of the answer must be the reference, as text."""

import re

FORMAT_SCORE = ${formatScore}
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
`;
}

/** As `src/tasks/tools/calculator.ts`: the same grammar in the main (errors are worded differently). */
export const CALCULATOR_PYTHON = `"""A calculator: + - * / parentheses, rounded to two decimals. Nothing is evaluated as code."""

import ast
import math
import operator

OPERATIONS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


def value_of(node):
    if isinstance(node, ast.Expression):
        return value_of(node.body)
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -value_of(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS:
        return OPERATIONS[type(node.op)](value_of(node.left), value_of(node.right))
    raise ValueError("only numbers, + - * / and parentheses are read")


def calculator(expression: str) -> str:
    """Evaluates an arithmetic expression with + - * / and parentheses.

    Args:
        expression: For example 48/2 or (3+4)*5
    """
    if len(expression) > 200:
        return "Error: the expression has more than 200 characters"
    try:
        value = value_of(ast.parse(expression.strip(), mode="eval"))
    except ZeroDivisionError:
        return "Error: division by zero"
    except (SyntaxError, ValueError, RecursionError) as error:
        return f"Error: {error}"
    if not abs(value) <= 1e15:
        return "Error: the result is too large"
    rounded = math.floor(value * 100 + 0.5) / 100
    return str(int(rounded)) if rounded == int(rounded) else repr(rounded)
`;

/** verl loads a tool by class name; \`calculator.py\` must be importable. */
export const VERL_TOOL_PYTHON = `"""The calculator as a tool of verl."""

from calculator import calculator
from verl.tools.base_tool import BaseTool
from verl.tools.schemas import ToolResponse


class CalculatorTool(BaseTool):
    async def execute(self, instance_id, parameters, **kwargs):
        return ToolResponse(text=calculator(str(parameters.get("expression", "")))), 0.0, {}
`;
