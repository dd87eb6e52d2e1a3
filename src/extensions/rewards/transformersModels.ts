/** Opens models that run on transformers.js: text classifiers, and text generators that are used as judges. */

import { InputError } from '../../errors.ts';

/** Returns a reply to a prompt; undefined if the prompt is too long. */
export type Completion = (prompt: string) => Promise<string | undefined>;

/** The part of transformers.js' text-classification pipeline that is used here. Returns undefined if the text is too long. */
export type Classifier = (
  text: string,
  options: { top_k: number },
) => Promise<{ label: string; score: number }[] | undefined>;

type Library = typeof import('@xenova/transformers');

/** Name of the package. It is not a literal in the import, because a bundler would then add its 20 MB to every page. */
const TRANSFORMERS = '@xenova/transformers';

/** Opens a text classifier by folder or name. Throws InputError if the library or the model is missing. */
export async function openClassifier(model: string): Promise<Classifier> {
  const classify = await open('reward.model.path', model, (library) => library.pipeline('text-classification', model));
  const { config } = classify.model as unknown as { config: { id2label?: object; problem_type?: string } };
  // A reward model with one output needs a sigmoid, as in Python's transformers. A softmax over one output would always be 1.
  if (Object.keys(config.id2label ?? {}).length === 1) config.problem_type = 'multi_label_classification';
  const { tokenizer } = classify;
  // The pipeline itself would cut the end of a longer text, which is the response.
  return async (text, options) =>
    tokenizer.encode(text).length > Number(tokenizer.model_max_length) ? undefined : classify(text, options);
}

/** Opens a chat model that gives greedy replies, for `judgeScorer`. A reply is undefined if the prompt is too long. */
export async function openGenerator(
  model: string,
  { maxPromptLength, maxNewTokens }: { maxPromptLength: number; maxNewTokens: number },
): Promise<Completion> {
  const generate = await open('reward.judge.path', model, (library) => library.pipeline('text-generation', model));
  const { tokenizer } = generate;
  // Names of control tokens in a response are broken up, so that the tokenizer reads them as text.
  const names = new Set(tokenizer.all_special_tokens);
  const safe = (text: string) => [...names].reduce((all, name) => all.replaceAll(name, brokenUp(name)), text);
  const tail = queue();
  return async (prompt) => {
    const chat = [{ role: 'user', content: safe(prompt) }];
    const ids = tokenizer.apply_chat_template(chat, { add_generation_prompt: true, return_tensor: false });
    if ((ids as unknown as { input_ids: number[] }).input_ids.length > maxPromptLength) return undefined;
    const options = { max_new_tokens: maxNewTokens, do_sample: false };
    const [{ generated_text: said }] = await tail(() => generate(chat, options));
    return (said as { content: string }[]).at(-1)!.content;
  };
}

const brokenUp = (name: string) => `${name[0]} ${name.slice(1)}`;

/** Runs calls one after another, because a session can compute only one batch at a time. */
function queue(): <T>(call: () => Promise<T>) => Promise<T> {
  let last: Promise<unknown> = Promise.resolve();
  return (call) => {
    const next = last.then(call, call);
    last = next.catch(() => {});
    return next;
  };
}

/** Loads a model with `load`. Throws InputError if the library or the model is missing. */
export async function open<T>(setting: string, model: string, load: (library: Library) => Promise<T>): Promise<T> {
  const library = await importTransformers(setting, model);
  try {
    return await load(library);
  } catch (error) {
    throw new InputError(
      `${setting} ${model} cannot be opened by transformers.js: ${messageOf(error).replace(/\.$/, '')}. Check the name, the folder or the network.`,
    );
  }
}

async function importTransformers(setting: string, model: string): Promise<Library> {
  try {
    return (await import(
      /* @vite-ignore */ /* webpackIgnore: true */ /* turbopackIgnore: true */ TRANSFORMERS
    )) as Library;
  } catch (error) {
    throw new InputError(
      `${setting} ${model} needs transformers.js, which is not installed (${messageOf(error)}). ` +
        `Install it with "npm install ${TRANSFORMERS}@npm:@huggingface/transformers", or leave ${setting} out.`,
    );
  }
}

const messageOf = (error: unknown) => (error instanceof Error ? error.message.split('\n')[0] : String(error));
