/** Finds the commands that a document shows, in code blocks and in backticks. */

const STARTERS = [
  /^npm run (?:-s )?webgrpo -- /,
  /^npx webgrpo /,
  /^node (?:\.\.\/)?scripts\/webgrpo\.mjs /,
  /^webgrpo (?=[a-z])/,
] as const;
/** Languages of code blocks that contain programs or data instead of shell commands. */
const NOT_SHELL = /^(ts|tsx|js|json|yaml|wgsl|css|html|python|py|toml|jinja|nginx|caddy)$/;

/** Programs other than webgrpo that a document tells the reader to run. */
const OTHERS = /^(cd|npm|npx|node|bun|deno|openssl|tensorboard|wandb|ollama|git|curl)$/;

/**
 * Returns the words of each command: ['webgrpo', 'train', ...], ['npm', SCRIPT, ...], ['node', FILE, ...] or ['other', PROGRAM, ...].
 * A name in the text, such as `webgrpo serve`, is a command too.
 */
export function commandsIn(document: string): string[][] {
  const { shell, text } = split(document.replaceAll(NOT_RUN, ''));
  const inline = Array.from(text.matchAll(/`([^`\n]+)`/g), ([, code]) => code);
  return [...shell, ...inline].flatMap((line) => simpleCommands(line).flatMap((command) => wordsOf(command)));
}

/** Matches the sentence of a page that lists commands which no test runs, each by its first words. */
const NOT_RUN = /^No test runs (.*)\.$/gm;

/** Returns the commands that a page lists as not run by tests, each as its first words. */
export const notRunIn = (document: string): string[][] =>
  Array.from(document.matchAll(NOT_RUN), ([, list]) => list).flatMap((list) =>
    Array.from(list.matchAll(/`([^`\n]+)`/g), ([, code]) => simpleCommands(code).flatMap(wordsOf)[0] ?? [code]),
  );

/** Splits a document into the lines of its shell blocks, with continued lines joined, and the text outside of code blocks. */
function split(document: string): { shell: string[]; text: string } {
  const shell: string[] = [];
  const text: string[] = [];
  let fence: string | undefined;
  for (const line of document.replaceAll(/ \\\n\s*/g, ' ').split('\n')) {
    const [, language] = /^\s*```(\w*)/.exec(line) ?? [];
    if (language !== undefined) fence = fence === undefined ? language : undefined;
    else if (fence !== undefined) shell.push(...(NOT_SHELL.test(fence) ? [] : [line.trim()]));
    else if (/^ {4,}\S/.test(line) && !/^\s*([-*|]|\d+\.) /.test(line)) shell.push(line.trim());
    else text.push(line);
  }
  return { shell, text: text.join('\n') };
}

/** Splits a line of shell into simple commands, without comments and redirections. */
function simpleCommands(line: string): string[][] {
  const tokens = Array.from(line.matchAll(/(?:'[^']*'|"[^"]*"|[^\s'"])+/g), ([token]) => token);
  const comment = tokens.findIndex((token) => token.startsWith('#'));
  const commands: string[][] = [[]];
  for (const token of comment < 0 ? tokens : tokens.slice(0, comment)) {
    if (/^(&&|\|\|?|;|>>?|<)$/.test(token)) commands.push([]);
    else if (!(commands.at(-1)!.length === 0 && /^(do|time|nice|\$|[A-Z_]+=\S*)$/.test(token)))
      commands.at(-1)!.push(token.replace(/;$/, ''));
    if (/;$/.test(token)) commands.push([]);
  }
  return commands.filter((command) => command.length > 0);
}

const unquoted = (word: string) => word.replaceAll(/'([^']*)'|"([^"]*)"/g, (_, one = '', two = '') => `${one}${two}`);

/**
 * Returns a list with the words of one command. It is empty for text that is not a command, and for patterns such as `webgrpo help
 * COMMAND`.
 */
function wordsOf(command: string[]): string[][] {
  const line = command.join(' ');
  const starter = STARTERS.find((pattern) => pattern.test(line));
  const words = command.map(unquoted);
  if (starter) {
    const rest = command.slice((line.match(starter)![0].trim().match(/ /g)?.length ?? 0) + 1).map(unquoted);
    return rest[0] === 'help' ? [] : [['webgrpo', ...rest]];
  }
  if (words[0] === 'npm' && words[1] === 'start')
    return [['webgrpo', 'train', 'configs/gsm8k-tool.yaml', ...words.slice(3)]];
  if (words[0] === 'npm' && words[1] === 'run') {
    const rest = words.slice(2).filter((word) => word !== '-s');
    return rest.length > 0 ? [['npm', ...rest]] : [];
  }
  if (words[0] === 'node' && words[1]?.startsWith('scripts/')) return [['node', ...words.slice(1)]];
  return OTHERS.test(words[0]) && words.length > 1 ? [['other', ...words]] : [];
}
