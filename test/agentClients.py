"""
Agents written with Python's packages, each with a calculator, against `webgrpo serve` by default settings.

    python test/agentClients.py CLIENT < lines.jsonl

A line of standard input: {"model": NAME, "tasks": [{"base": "http://host/v1 or http://host/v1/t/GROUP/NAME", "question": TEXT}]}. A line
of standard output: the answer of each task, or "missing: PACKAGE". The tasks of a line run at the same time, in threads.
"""

import ast
import asyncio
import json
import operator
import os
import sys
from concurrent.futures import ThreadPoolExecutor

os.environ.update(OPENAI_AGENTS_DISABLE_TRACING="1", OPENAI_API_KEY="none", ANTHROPIC_API_KEY="none")
os.environ.update(LITELLM_LOCAL_MODEL_COST_MAP="True", NO_PROXY="127.0.0.1", INSPECT_DISPLAY="none")
MAX_TURNS = 6
DESCRIPTION = "Evaluates an arithmetic expression."
PARAMETERS = {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]}
FUNCTION = {"name": "calculator", "description": DESCRIPTION, "parameters": PARAMETERS}
OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


def calculate(expression):
    """Returns the result, rounded to two decimals, or a text that starts with "Error:"."""

    def value(node):
        match node:
            case ast.Expression(body=body):
                return value(body)
            case ast.Constant(value=int() | float() as number):
                return number
            case ast.BinOp(left=left, op=op, right=right):
                return OPERATORS[type(op)](value(left), value(right))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -value(operand)
        raise ValueError("only + - * / and parentheses")

    try:
        return f"{round(value(ast.parse(expression, mode='eval')), 2):g}"
    except Exception as error:
        return f"Error: {error}"


def root(base):
    """Anthropic's clients add /v1 themselves."""
    return base.removesuffix("/v1")


def chat_loop(complete, question):
    """Calls the model and the calculator until the model answers."""
    messages = [{"role": "user", "content": question}]
    for _ in range(MAX_TURNS):
        tools = [{"type": "function", "function": FUNCTION}]
        message = complete(messages=messages, tools=tools).choices[0].message
        messages.append(message)
        if not message.tool_calls:
            return message.content
        for call in message.tool_calls:
            result = calculate(json.loads(call.function.arguments)["expression"])
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


def openai_chat(model, base, question):
    from openai import OpenAI

    client = OpenAI(base_url=base)
    return chat_loop(lambda **asked: client.chat.completions.create(model=model, **asked), question)


def openai_responses(model, base, question):
    from openai import OpenAI

    client = OpenAI(base_url=base)
    previous, given = None, question
    for _ in range(MAX_TURNS):
        asked = {"model": model, "input": given, "tools": [{"type": "function", **FUNCTION}]}
        with client.responses.stream(**asked, previous_response_id=previous) as stream:
            response = stream.get_final_response()
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            return response.output_text
        previous = response.id
        given = [
            {
                "type": "function_call_output",
                "call_id": call.call_id,
                "output": calculate(json.loads(call.arguments)["expression"]),
            }
            for call in calls
        ]


def agents_with(model_class, base, model, question):
    from agents import Agent, Runner, function_tool
    from openai import AsyncOpenAI

    @function_tool
    def calculator(expression: str) -> str:
        """Evaluates an arithmetic expression."""
        return calculate(expression)

    async def run():
        client = AsyncOpenAI(base_url=base)
        agent = Agent(name="solver", tools=[calculator], model=model_class(model=model, openai_client=client))
        return (await Runner.run(agent, question)).final_output

    return asyncio.run(run())


def openai_agents(model, base, question):
    from agents import OpenAIResponsesModel

    return agents_with(OpenAIResponsesModel, base, model, question)


def openai_agents_chat(model, base, question):
    from agents import OpenAIChatCompletionsModel

    return agents_with(OpenAIChatCompletionsModel, base, model, question)


def anthropic_stream(model, base, question):
    from anthropic import Anthropic

    client = Anthropic(base_url=root(base))
    tools = [{"name": "calculator", "description": DESCRIPTION, "input_schema": PARAMETERS}]
    messages = [{"role": "user", "content": question}]
    for _ in range(MAX_TURNS):
        with client.messages.stream(model=model, max_tokens=1024, messages=messages, tools=tools) as stream:
            message = stream.get_final_message()
        messages.append({"role": "assistant", "content": message.content})
        uses = [block for block in message.content if block.type == "tool_use"]
        if not uses:
            return message.content[0].text
        results = [
            {"type": "tool_result", "tool_use_id": use.id, "content": calculate(use.input["expression"])} for use in uses
        ]
        messages.append({"role": "user", "content": results})


def anthropic_tool_runner(model, base, question):
    from anthropic import Anthropic, beta_tool

    @beta_tool
    def calculator(expression: str) -> str:
        """Evaluates an arithmetic expression."""
        return calculate(expression)

    client = Anthropic(base_url=root(base))
    messages = [{"role": "user", "content": question}]
    asked = {"model": model, "max_tokens": 1024, "messages": messages, "tools": [calculator]}
    return client.beta.messages.tool_runner(**asked).until_done().content[0].text


def litellm_with(provider, model, base, question):
    import litellm

    given = {"model": f"{provider}/{model}", "api_base": base, "api_key": "none"}
    return chat_loop(lambda **asked: litellm.completion(**given, **asked), question)


def litellm_openai(model, base, question):
    return litellm_with("openai", model, base, question)


def litellm_anthropic(model, base, question):
    return litellm_with("anthropic", model, root(base), question)


def litellm_responses(model, base, question):
    import litellm

    tools = [{"type": "function", **FUNCTION}]
    asked = {"model": f"openai/{model}", "api_base": base, "api_key": "none", "tools": tools}
    response = litellm.responses(input=question, **asked)
    for _ in range(MAX_TURNS):
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            return response.output[0].content[0].text
        given = [
            {
                "type": "function_call_output",
                "call_id": call.call_id,
                "output": calculate(json.loads(call.arguments)["expression"]),
            }
            for call in calls
        ]
        response = litellm.responses(input=given, previous_response_id=response.id, **asked)


def langgraph(model, base, question):
    from langchain_openai import ChatOpenAI
    from langgraph.prebuilt import create_react_agent

    def calculator(expression: str) -> str:
        """Evaluates an arithmetic expression."""
        return calculate(expression)

    agent = create_react_agent(ChatOpenAI(model=model, base_url=base), [calculator])
    return agent.invoke({"messages": [("user", question)]})["messages"][-1].content


def pydantic_with(model, question):
    from pydantic_ai import Agent

    agent = Agent(model)

    @agent.tool_plain
    def calculator(expression: str) -> str:
        """Evaluates an arithmetic expression."""
        return calculate(expression)

    return asyncio.run(agent.run(question)).output


def pydantic_ai_chat(model, base, question):
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    return pydantic_with(OpenAIChatModel(model, provider=OpenAIProvider(base_url=base)), question)


def pydantic_ai_responses(model, base, question):
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    return pydantic_with(OpenAIResponsesModel(model, provider=OpenAIProvider(base_url=base)), question)


def pydantic_ai_anthropic(model, base, question):
    from anthropic import AsyncAnthropic
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    provider = AnthropicProvider(anthropic_client=AsyncAnthropic(base_url=root(base)))
    return pydantic_with(AnthropicModel(model, provider=provider), question)


def instructor(model, base, question):
    import instructor as package
    from openai import OpenAI
    from pydantic import BaseModel

    class calculator(BaseModel):
        """Evaluates an arithmetic expression."""

        expression: str

    client = package.from_openai(OpenAI(base_url=base))
    messages = [{"role": "user", "content": question}]
    call = client.chat.completions.create(model=model, messages=messages, response_model=calculator)
    return f"It is {calculate(call.expression)}."


def smolagents(model, base, question):
    from smolagents import OpenAIServerModel, ToolCallingAgent, tool

    @tool
    def calculator(expression: str) -> str:
        """Evaluates an arithmetic expression.

        Args:
            expression: for example 6*7
        """
        return calculate(expression)

    chat = OpenAIServerModel(model_id=model, api_base=base, api_key="none")
    return f"{ToolCallingAgent(tools=[calculator], model=chat, max_steps=MAX_TURNS, verbosity_level=0).run(question)}"


def inspect_with(name, base, question):
    from inspect_ai import Task, eval as evaluate
    from inspect_ai.dataset import Sample
    from inspect_ai.model import get_model
    from inspect_ai.solver import generate, use_tools
    from inspect_ai.tool import tool

    @tool
    def calculator():
        async def execute(expression: str) -> str:
            """Evaluates an arithmetic expression.

            Args:
                expression: for example 6*7
            """
            return calculate(expression)

        return execute

    import tempfile

    task = Task(dataset=[Sample(input=question)], solver=[use_tools(calculator()), generate()])
    with tempfile.TemporaryDirectory() as folder:
        [log] = evaluate(task, model=get_model(name, base_url=base, api_key="none"), log_dir=folder)
        if log.status != "success":
            raise RuntimeError(log.error)
        return log.samples[0].output.completion


def inspect_ai_openai(model, base, question):
    return inspect_with(f"openai/{model}", base, question)


def inspect_ai_anthropic(model, base, question):
    return inspect_with(f"anthropic/{model}", root(base), question)


def verifiers(model, base, question):
    import verifiers as package
    from datasets import Dataset
    from verifiers.types import ClientConfig

    def calculator(expression: str) -> str:
        """Evaluates an arithmetic expression."""
        return calculate(expression)

    dataset = Dataset.from_list([{"question": question, "answer": ""}])
    env = package.ToolEnv(eval_dataset=dataset, tools=[calculator], rubric=package.Rubric(), max_turns=MAX_TURNS)
    client = ClientConfig(api_base_url=base)
    results = asyncio.run(env.evaluate(client, model, num_examples=1, rollouts_per_example=1))
    outputs = results["outputs"] if isinstance(results, dict) else results
    completion = outputs[0]["completion"] if "completion" in outputs[0] else results["completion"][0]
    last = completion[-1]
    return last["content"] if isinstance(last, dict) else last.content


def main():
    client = globals()[sys.argv[1]]
    answers_to, sys.stdout = sys.stdout, sys.stderr  # packages print there
    with ThreadPoolExecutor(64) as pool:
        for line in sys.stdin:
            given = json.loads(line)
            answer = lambda task: client(given["model"], task["base"], task["question"])
            run = pool.map if len(given["tasks"]) > 1 else map  # verifiers sets signals, so it needs the main thread
            try:
                answers = list(run(answer, given["tasks"]))
            except ModuleNotFoundError as error:
                answers = f"missing: {error.name}"
            print(json.dumps(answers), file=answers_to, flush=True)


main()
