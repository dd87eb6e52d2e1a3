"""The calculator as a tool of verl."""

from calculator import calculator
from verl.tools.base_tool import BaseTool
from verl.tools.schemas import ToolResponse


class CalculatorTool(BaseTool):
    async def execute(self, instance_id, parameters, **kwargs):
        return ToolResponse(text=calculator(str(parameters.get("expression", "")))), 0.0, {}
