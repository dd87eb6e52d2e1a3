/** Tests README's reading order: the functions that it names exist, and each is called by the previous one. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import ts from 'typescript';
import { expect, test } from 'vitest';

interface Station {
  file: string;
  name: string;
  /** True if the training step itself calls the function, and not the previous function on the list. */
  fromStep: boolean;
}

/** Matches the numbered lines of README: "4. [`file`](file), `name()`: what it does", or "6. back in the step: [`file`]...". */
const stations: Station[] = [
  ...readFileSync('README.md', 'utf8').matchAll(/^\d\. (back in the step: )?\[`(\S+)`\]\(\2\), `(#?\w+)\(\)`/gm),
].map(([, back, file, name]) => ({ file, name, fromStep: back !== undefined }));

/**
 * Maximum number of files outside the list through which a call can pass, such as the file of the sample between an agent loop and its
 * engine.
 */
const MAX_FILES_BETWEEN = 4;

/** Returns `read` with a memory, since the search asks for the same files and names thousands of times. */
function remembered<T>(read: (...key: string[]) => T): typeof read {
  const known = new Map<string, T>();
  return (...key) => {
    const name = key.join(' ');
    if (!known.has(name)) known.set(name, read(...key));
    return known.get(name)!;
  };
}

const textOf = remembered((file) => readFileSync(file, 'utf8'));
const parse = remembered((file) => ts.createSourceFile(file, textOf(file), ts.ScriptTarget.Latest, true));

const importsOf = remembered((file) => {
  const targets = parse(file).statements.filter(ts.isImportDeclaration);
  return targets
    .map(({ moduleSpecifier }) => normalize(join(dirname(file), (moduleSpecifier as ts.StringLiteral).text)))
    .filter((target) => target.startsWith('src/') && target.endsWith('.ts'));
});

const nameOf = (name: ts.Node | undefined): string | undefined =>
  name && (ts.isIdentifier(name) || ts.isPrivateIdentifier(name)) ? name.text : undefined;

/**
 * Returns the functions and methods of a file by name. A constant counts too, because it can be a table of functions. A class counts as its
 * constructor.
 */
const definitionsIn = remembered((file) => {
  const byName = new Map<string | undefined, ts.Node[]>();
  const add = (name: ts.Node | undefined, ...nodes: ts.Node[]) =>
    byName.set(nameOf(name), [...(byName.get(nameOf(name)) ?? []), ...nodes]);
  for (const statement of parse(file).statements) {
    if (ts.isVariableStatement(statement)) for (const d of statement.declarationList.declarations) add(d.name, d);
    if (ts.isFunctionDeclaration(statement)) add(statement.name, statement);
    if (!ts.isClassDeclaration(statement)) continue;
    add(statement.name, ...statement.members.filter(ts.isConstructorDeclaration));
    for (const member of statement.members) if (ts.isMethodDeclaration(member)) add(member.name, member);
  }
  return byName;
});
const definitions = (file: string, name: string): readonly ts.Node[] => definitionsIn(file).get(name) ?? [];

/** Returns the names that a piece of code refers to. Names of methods are included only if they are accessed on an object. */
function references(node: ts.Node): Set<string> {
  const names = new Set<string>();
  const visit = (child: ts.Node): void => {
    if (ts.isPropertyAccessExpression(child)) names.add(`.${child.name.text}`);
    const name = nameOf(child);
    const isProperty = ts.isPropertyAccessExpression(child.parent) && child.parent.name === child;
    if (name !== undefined && !isProperty) names.add(name);
    ts.forEachChild(child, visit);
  };
  ts.forEachChild(node, visit);
  return names;
}

const referencesIn = remembered((file, name) => definitions(file, name).flatMap((node) => [...references(node)]));

const sources = readdirSync('src', { recursive: true, encoding: 'utf8' })
  .map((file) => `src/${file.replaceAll('\\', '/')}`)
  .filter((file) => file.endsWith('.ts') && !file.endsWith('.d.ts'));

/**
 * Returns the files with classes that implement an interface: the interface is declared in `file` and contains `method`, and the class has
 * all of its methods.
 */
const implementers = remembered((file, method): string[] =>
  interfacesOf(file)
    .filter((methods) => methods.includes(method))
    .flatMap((methods) =>
      classes.filter(({ members }) => methods.every((name) => members.has(name))).map(({ source }) => source),
    ),
);
const interfacesOf = remembered((file) =>
  parse(file)
    .statements.filter(ts.isInterfaceDeclaration)
    .map(({ members }) =>
      members.filter((m) => ts.isMethodSignature(m) && !m.questionToken).map((m) => nameOf(m.name)!),
    ),
);
const classes = sources
  .filter((source) => /^(export )?(abstract )?class /m.test(textOf(source)))
  .flatMap((source) =>
    parse(source)
      .statements.filter(ts.isClassDeclaration)
      .map(({ members }) => ({ source, members: new Set(members.map(({ name }) => nameOf(name))) })),
  );

/**
 * Returns the files that can define a name used in a function of `file`: the file itself, its imports, or implementers of an imported type.
 */
const resolve = remembered((file, name): string[] => {
  const direct = [file, ...importsOf(file)];
  const picked = direct.filter((other) => textOf(other).includes('= Pick<')).flatMap((other) => importsOf(other));
  const near = [...direct, ...picked];
  return [...new Set([...near, ...near.flatMap((other) => implementers(other, name))])].filter(
    (other) => definitions(other, name).length > 0,
  );
});

/** True if `from` calls `to`, directly or through functions in the two files and in at most MAX_FILES_BETWEEN other files. */
function calls(from: Station, to: Station): boolean {
  const cheapest = new Map<string, number>();
  let open: { file: string; name: string; between: number }[] = [{ ...from, between: 0 }];
  while (open.length > 0) {
    const next: typeof open = [];
    for (const { file, name, between } of open)
      for (const used of referencesIn(file, name)) {
        const reference = used.replace('.', '');
        const isMethod = used !== reference;
        for (const target of resolve(file, reference)) {
          if (definitions(target, reference).every((node) => ts.isMethodDeclaration(node) !== isMethod)) continue;
          if (target === to.file && reference === to.name) return true;
          const isOther = target !== file && target !== from.file && target !== to.file;
          const cost = between + (isOther ? 1 : 0);
          const key = `${target} ${reference}`;
          if (cost > MAX_FILES_BETWEEN || cost >= (cheapest.get(key) ?? Infinity)) continue;
          cheapest.set(key, cost);
          next.push({ file: target, name: reference, between: cost });
        }
      }
    open = next;
  }
  return false;
}

test('README names eight files, and the functions are in them', () => {
  expect(stations).toHaveLength(8);
  expect(new Set(stations.map(({ file }) => file)).size).toBe(8);
  expect(stations[0]).toEqual({ file: 'src/grpo/trainer.ts', name: 'step', fromStep: false });
  for (const { file, name } of stations) {
    expect(existsSync(file), file).toBe(true);
    expect(definitions(file, name), `${file} defines ${name}`).not.toEqual([]);
  }
});

test.each(stations.slice(1).map((station, i) => [station.file, station.name, i + 1] as const))(
  '%s: %s() is called by the one before it',
  (_file, _name, index) => {
    const station = stations[index];
    const caller = stations[station.fromStep ? 0 : index - 1];
    expect(calls(caller, station), `${caller.file} ${caller.name}() calls ${station.file} ${station.name}()`).toBe(
      true,
    );
  },
);

test('a missing call is not found', () => {
  const [step, generate] = stations;
  expect(calls(generate, step)).toBe(false);
  expect(calls(stations[5], stations[6])).toBe(false); // stepTokens updates nothing
});
