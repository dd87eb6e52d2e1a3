/** Generators of inputs: real texts with changes, and pieces combined at random. */

import fc from 'fast-check';

/** Texts that often break parsers. */
export const ODD: readonly string[] = [
  ...[
    '',
    ' ',
    '\t',
    '\0',
    '\ufeff',
    '\ud800',
    '\u2028',
    '\r\n',
    '---',
    '...',
    '#',
    '&a',
    '*a',
    '&a [*a]',
    '!!binary aGk=',
    '<<: *a',
  ],
  ...[
    'null',
    'true',
    '~',
    '.nan',
    '.inf',
    '-.inf',
    '0',
    '-0',
    '-1',
    '1.5',
    '1e400',
    '1e999',
    '1e300',
    '1e-300',
    '2147483648',
  ],
  ...[
    '9007199254740993',
    '99999999999999999999999',
    '0x1F',
    '0o17',
    '1_000',
    '2001-01-01',
    '12:30:45',
    'NaN',
    'Infinity',
    'undefined',
  ],
  ...[
    '[]',
    '{}',
    '[[]]',
    '[null]',
    '{a: 1}',
    '{"__proto__": {"polluted": 1}}',
    '__proto__',
    'constructor',
    'prototype',
    'toString',
  ],
  ...[
    '..',
    '../..',
    '/',
    '.',
    '/dev/null',
    '/dev/zero',
    'a/b',
    'a\\b',
    'x'.repeat(300),
    '['.repeat(2000),
    '{'.repeat(2000),
  ],
  ...[
    '- '.repeat(500),
    '"',
    "'",
    '"\\',
    '|',
    '>',
    '%YAML 1.1',
    '@',
    '`',
    '{{ x }}',
    '${x}',
    '<script>',
    '\x1b[31m',
    '"\\ud800"',
  ],
];

export const odd = fc.constantFrom(...ODD);

/** A random value, like a user's value on a command line. */
export const value = fc.oneof(
  { weight: 3, arbitrary: odd },
  fc.integer({ min: -3, max: 70 }).map(String),
  fc.integer().map(String),
  fc.double().map(String),
  fc.json({ maxDepth: 3 }),
  fc.string({ unit: 'binary', maxLength: 12 }),
);

/**
 * Returns the text with one to four changes: a cut, a repetition, an odd text inserted or replaced, a changed character, two lines swapped.
 */
export function changed(texts: readonly string[]): fc.Arbitrary<string> {
  const place = fc.double({ min: 0, max: 1, noNaN: true });
  const change = fc.record({ how: fc.nat(5), at: place, to: place, odd, unit: fc.nat(0xffff) });
  return fc.tuple(fc.constantFrom(...texts), fc.array(change, { minLength: 1, maxLength: 4 })).map(([text, changes]) =>
    changes.reduce((now, { how, at, to, odd: put, unit }) => {
      const [from, end] = [at, to].map((share) => Math.floor(share * now.length)).sort((a, b) => a - b);
      const lines = now.split('\n');
      const line = Math.min(lines.length - 1, Math.floor(at * lines.length));
      if (how === 0) return now.slice(0, from) + now.slice(Math.min(end, from + 40));
      if (how === 1) return now.slice(0, end) + now.slice(from, end).repeat(2) + now.slice(end);
      if (how === 2) return now.slice(0, from) + put + now.slice(from);
      if (how === 3)
        return lines
          .with(
            line,
            (lines[line] ?? '').replace(/([:=]\s*).*$/, (_, sign: string) => sign + put),
          )
          .join('\n');
      if (how === 4) return now.slice(0, from) + String.fromCharCode(unit) + now.slice(from + 1);
      return lines.toSpliced(line, 1, ...lines.slice(line, line + 2).reverse()).join('\n');
    }, text),
  );
}

/** Combines pieces in any number and order, valid or not. */
export const mixed = (pieces: readonly string[], maxLength = 24): fc.Arbitrary<string> =>
  fc
    .array(fc.oneof({ weight: 4, arbitrary: fc.constantFrom(...pieces) }, odd), { maxLength })
    .map((parts) => parts.join(''));

/** Repeats one piece up to 100,000 times, between two other pieces. */
export const repeated = (pieces: readonly string[]): fc.Arbitrary<string> =>
  fc
    .tuple(
      fc.constantFrom(...pieces),
      fc.constantFrom(...pieces),
      fc.constantFrom(...pieces),
      fc.integer({ min: 1, max: 100_000 }),
    )
    .map(
      ([before, piece, after, count]) => before + piece.repeat(Math.min(count, Math.ceil(1e6 / piece.length))) + after,
    );
