/** Checks the first problems of a run: whether the chat template drops or refuses parts of them, and whether held-out problems are trained on. */

import { InputError } from '../../errors.ts';
import type { CalledTurn, ChatTokenizer } from '../../model/tokenizer/chat.ts';
import { isWritten, lostRoles, markerOf, namedRole, OTHER_TEMPLATE } from '../../model/tokenizer/lostText.ts';
import { TemplateStopped } from '../../model/tokenizer/template.ts';
import { openAiSchema, writesSchemas } from '../../rollout/agent/prompt.ts';
import { calledTurn } from '../../rollout/agent/turnText.ts';
import { type ToolParser, toolParserOf } from '../../rollout/tools/parser.ts';
import { withObservation } from '../../tasks/environments/environment.ts';
import { partsOf } from '../../tasks/environments/environmentTask.ts';
import { givenProblem, placed, placeOf } from '../../tasks/problem.ts';
import type { Message, Problem, Task } from '../../tasks/task.ts';
import type { Tool } from '../../tasks/tool.ts';
import type { TrainConfig } from '../../grpo/config/types.ts';
import { agentLimits } from '../../grpo/generate/options.ts';
import { limitedTask } from '../../grpo/generate/trainingSet.ts';

interface CheckedRun {
  config: TrainConfig;
  task: Pick<Task, 'name' | 'tools' | 'environments'>;
  tokenizer: ChatTokenizer;
  /** Parser for tool calls. Default: the parser of rollout.multiTurn.format. */
  toolParser?: ToolParser | undefined;
}

interface CheckedProblems {
  training: readonly Problem[];
  heldOut: readonly Problem[];
}

const allOf = ({ training, heldOut }: CheckedProblems): Problem[] => [...heldOut, ...training];

/**
 * Parameters of a tool whose name and description are a marker. The object is empty, because only the marker is searched for in the
 * rendered prompt.
 */
const NO_PARAMETERS = { type: 'object' as const, properties: {}, required: [] };
const SCHEMAS = 'tool schemas (rollout.multiTurn.toolSchemasInPrompt)';

/** Maximum number of different sequences of roles that are checked, each by rendering one prompt with a marker in every message. */
const MAX_SHAPES = 64;

/**
 * Returns a sentence for each part of a run's prompts that the template drops. Throws InputError if the template refuses a prompt, or drops
 * a part without which training cannot work: the last message of a prompt, or the outputs of tools or an environment. A dropped system
 * message or tool schema is only reported, because the model can learn its content from the rewards.
 */
export function checkTemplate(run: CheckedRun, problems: CheckedProblems): string[] {
  const { config, task, tokenizer, toolParser } = run;
  const notes = promptLosses(run, problems, (problem) => writesSchemas(config.rollout, tokenizer, problem));
  const { maxAssistantTurns, maxToolCalls } = agentLimits(config);
  if (maxAssistantTurns < 2) return notes;
  // Problems whose agent loop is not `tool_agent` are skipped, because their loops format tool results themselves.
  const looping = ({ agentName = config.rollout.agent.defaultAgentLoop }: Problem) => agentName === 'tool_agent';
  const parts = allOf(problems)
    .filter(looping)
    .map((problem) => partsOf(task, problem));
  const [tool] = parts.flatMap(({ tools }) => tools);
  if (tool && maxToolCalls > 0)
    expectToolResults(tokenizer, toolParser ?? toolParserOf(config.rollout.multiTurn.format), tool.name);
  if (parts.some(({ environment }) => environment?.step))
    tokenizer.encodeContinuation([{ role: 'user', content: '1' }]);
  return notes;
}

/** Returns a sentence if held-out problems are missing, or if some are training problems too: pass@1 then does not measure learning. */
export function heldOutNotes({ name, environments }: Task, { training, heldOut }: CheckedProblems): string[] {
  if (heldOut.length === 0) return [`Task "${name}" has no held-out problems: no pass@1 is measured.`];
  if (environments?.length) return []; // the prompts of two problems can be the same, although their environments differ
  const textOf = ({ messages, answer }: Problem) => JSON.stringify([messages, answer]);
  const trained = new Set(training.map(textOf));
  const [known, ...more] = heldOut.filter((problem) => trained.has(textOf(problem)));
  if (!known) return [];
  const count = `At least ${more.length + 1} of ${heldOut.length} held-out problems`; // later draws of the run can add more
  return [`${count} are training problems too, e.g. "${known.id}": pass@1 is too high.`];
}

/** Number of problems that are checked before a run, for a task that generates problems without end. */
const CHECKED_PROBLEMS = 2048;

/**
 * Returns the number of training problems that are checked before a run: those that it draws, at most `CHECKED_PROBLEMS` of a task without
 * end. If the prompt of a later problem is too long, it still ends the run, with the same message.
 */
export function checkedCount(task: Task, config: TrainConfig): number {
  const { trainSize = CHECKED_PROBLEMS } = limitedTask(task, config);
  return Math.min(config.data.trainBatchSize * config.trainer.totalTrainingSteps, trainSize);
}

/**
 * Same check as `checkTemplate`, for the first training problems of a run (`checkedCount`) and the held-out problems, with `heldOutNotes`.
 * Also throws UserCodeError for an invalid problem.
 */
export async function checkFirstPrompts(run: Omit<CheckedRun, 'task'> & { task: Task }): Promise<string[]> {
  const { config, task } = run;
  const { train } = limitedTask(task, config);
  const first = Array.from({ length: checkedCount(task, config) }, async (_, i) =>
    givenProblem(`Training problem ${i} of task "${task.name}"`, () => train(i, config.seed)),
  );
  const problems = { training: await Promise.all(first), heldOut: await task.heldOut(config.data.valMaxSamples) };
  return [...checkTemplate(run, problems), ...heldOutNotes(task, problems)];
}

/**
 * Returns a sentence for each part of the prompts that the template drops, and one if prompts already contain tags of a chat template.
 * Throws like `checkTemplate`.
 */
export function promptLosses(
  { task, tokenizer }: Pick<CheckedRun, 'task' | 'tokenizer'>,
  problems: CheckedProblems,
  isWritten: (problem: Problem) => boolean = () => false,
): string[] {
  const shapes = shapesOf(allOf(problems), task);
  const lost = shapes.flatMap(({ problem, tools }) =>
    lostInPrompt(tokenizer, problem, tools.length > 0 && isWritten(problem)),
  );
  const names = [...new Set(lost)].join(' and ');
  const doubled = templatedTwice(tokenizer, problems);
  return [
    ...(names === ''
      ? []
      : [`The chat template leaves out ${names}, so the model never reads them. ${OTHER_TEMPLATE}`]),
    ...(doubled === undefined ? [] : [doubled]),
  ];
}

/**
 * For runs whose clients send their own messages and tools: returns a sentence for each part of a request that the template drops; [] if it
 * drops none. Tool calls are not checked, because `CallTemplate` writes them into the content if the template has no code for them.
 */
export function requestLosses(tokenizer: ChatTokenizer, toolParser: ToolParser, withSchemas = false): string[] {
  const messages = ['system', 'user'].map((role) => ({ role, content: '1' }));
  const schema = markerOf(messages.length);
  const tools = [openAiSchema({ name: schema, description: schema, parameters: NO_PARAMETERS })];
  const losses = [
    () => lostRoles(messages, (marked) => tokenizer.applyChatTemplate(marked)).map(namedRole),
    () => (!withSchemas || isWritten(tokenizer.applyChatTemplate(messages, { tools }), schema) ? [] : [SCHEMAS]),
    () => (expectToolResults(tokenizer, toolParser, 'search'), []),
  ];
  return losses.flatMap((lostBy) => {
    try {
      return lostBy().map((lost) => `The chat template leaves out ${lost} of requests. ${OTHER_TEMPLATE}`);
    } catch (error) {
      if (error instanceof InputError) return [error.message];
      throw error;
    }
  });
}

/** Throws InputError if the template drops the result of a tool call. */
function expectToolResults(tokenizer: ChatTokenizer, { stopToken }: ToolParser, name: string): void {
  const end = stopToken === undefined ? undefined : (tokenizer.idOf(stopToken) ?? tokenizer.eosTokenIds[0]);
  const called: CalledTurn | undefined =
    stopToken === undefined ? undefined : calledTurn([{ name, args: {} }], { stopToken, endToken: end, before: 0 });
  tokenizer.encodeContinuation([{ role: 'tool', content: '1' }], called);
}

/** Returns the first problem of each sequence of roles, with its tools. Prompts of the same roles are rendered alike. */
function shapesOf(problems: readonly Problem[], task: CheckedRun['task']): { problem: Problem; tools: Tool[] }[] {
  const shapes = new Map<string, { problem: Problem; tools: Tool[] }>();
  for (const problem of problems) {
    if (shapes.size === MAX_SHAPES) break;
    const { tools, environment } = partsOf(task, problem);
    const messages = environment?.reset ? withObservation(problem.messages, '1') : problem.messages;
    const key = JSON.stringify([messages.map(({ role }) => role), tools.length > 0, problem.agentName]);
    if (!shapes.has(key)) shapes.set(key, { problem: placed({ ...problem, messages }, problem), tools });
  }
  return [...shapes.values()];
}

/** Returns the names of the parts of a prompt that the template drops. */
function lostInPrompt(tokenizer: ChatTokenizer, problem: Problem, withSchemas: boolean): string[] {
  const { messages } = problem;
  const schema = markerOf(messages.length);
  const tools = withSchemas ? [openAiSchema({ name: schema, description: schema, parameters: NO_PARAMETERS })] : [];
  let text = '';
  try {
    const render = (marked: Problem['messages']) => (text = tokenizer.applyChatTemplate(marked, { tools }));
    const lost = lostRoles(messages, render);
    if (messages.length > 0 && !isWritten(text, markerOf(messages.length - 1)))
      throw new InputError(
        `The chat template leaves out ${namedRole(messages[messages.length - 1].role)} at the end of the prompt of ` +
          `${placeOf(problem)}, so the model never reads what it is asked. ${OTHER_TEMPLATE}`,
      );
    const schemas = withSchemas && !isWritten(text, schema) ? [SCHEMAS] : [];
    return [...lost.map(namedRole), ...schemas];
  } catch (error) {
    if (!(error instanceof TemplateStopped)) throw error;
    throw new InputError(
      `The chat template refuses the prompt of ${placeOf(problem)} (messages: ${messages.map(({ role }) => role).join(', ')}): ` +
        `${error.reason} Change the messages, or set model.customChatTemplate to a template that takes them.`,
      { cause: error },
    );
  }
}

/**
 * Returns the tags that the template writes between turns: names of control tokens, and texts such as <tag> or [TAG] that are ordinary
 * tokens.
 */
function turnTags(tokenizer: ChatTokenizer): string[] {
  const [question, reply, next] = [0, 1, 2].map(markerOf);
  const turns = ['user', 'assistant', 'user'].map((role, i) => ({ role, content: markerOf(i) }));
  let between = '';
  try {
    const text = tokenizer.applyChatTemplate(turns, { addGenerationPrompt: false });
    between = text.slice(text.indexOf(question) + question.length, text.indexOf(next)).replace(reply, ' ');
  } catch (error) {
    if (!(error instanceof TemplateStopped)) throw error;
  }
  const tokens = tokenizer.encode(between).map((id) => tokenizer.decode([id]));
  const tags = between.match(/<[^<>\s]+>|\[[^[\]\s]+\]/g) ?? [];
  return [...new Set([...tokens.filter((token) => tokenizer.namesControl(token)), ...tags])];
}

/** Returns a sentence if prompts already contain tags that the template writes around messages; undefined otherwise. */
function templatedTwice(tokenizer: ChatTokenizer, { training, heldOut }: CheckedProblems): string | undefined {
  const tags = turnTags(tokenizer);
  const isFromOutside = ({ role }: Message) => role !== 'system' && role !== 'assistant';
  const tagIn = ({ messages }: Problem) =>
    tags.find((tag) => messages.some((message) => isFromOutside(message) && message.content.includes(tag)));
  const found = (problems: readonly Problem[]) => problems.filter((problem) => tagIn(problem) !== undefined);
  const [train, held] = [found(training), found(heldOut)];
  const first = train[0] ?? held[0];
  if (first === undefined) return undefined;
  return (
    `${train.length} of ${training.length} training and ${held.length} of ${heldOut.length} held-out prompts hold tags of the ` +
    `chat template, e.g. ${JSON.stringify(tagIn(first))} in ${placeOf(first)}. The template wraps them again and the model reads ` +
    'the tags as plain text: give the bare question, or "messages" with role and content.'
  );
}
