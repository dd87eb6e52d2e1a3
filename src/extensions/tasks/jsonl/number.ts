/**
 * Finds and normalises the last number of a text. The reward `number` compares such numbers as texts, never as floats. reward_jsonl.py is
 * the same code in Python.
 */

/** Stands for a space between groups of digits that can be one number or two, as in 12 345. */
const UNSURE = '\u2423';
const SIGN = String.raw`[-\u2010-\u2013\u2212]`;
/** Digits with separators between them, and an exponent. FORMS says which of them are numbers. */
const DIGITS = String.raw`(?:(?<!\.)\.)?\d+(?:['\u2019_,.${UNSURE}]\d+)*(?:[eE][-+\u2212]?\d+)?`;
/** Matches a number: sign, currency, digits and denominator. Matches nothing inside a word such as "m2", "CO2" or "v1.2". */
const NUMBER = new RegExp(
  String.raw`((?:(?<![\w)\]])${SIGN})?)(?<!\w)(?<!\d\.)(?:[$\u20ac\u00a3\u00a5\u20b9](${SIGN}?))?(${DIGITS})(?:[/\u2044](${DIGITS}))?`,
  'gu',
);
/** Ways to write a number, each with its decimal mark. Digits in another form, such as 3,5 or 1.2.3, have no certain value. */
const FORMS: readonly (readonly [RegExp, string])[] = [
  [/^\d*(?:\.\d+)?$/, '.'],
  [/^[1-9]\d{0,2}([,'_])\d{3}(?:\1\d{3})*(?:\.\d+)?$/, '.'],
  [/^[1-9]\d?(?:,\d\d)+,\d{3}(?:\.\d+)?$/, '.'], // India: 12,34,567
  [/^[1-9]\d{0,2}(?:(?:\.\d{3})+|(?:'\d{3})+),\d+$/, ','], // the Continent: 1.234,5
  [/^[1-9]\d{0,2}(?:\.\d{3}){2,}$/, ','],
];
/** Text before or after a number that is part of an expression: a power, 0x1F, 3x5, or a digit of another script. */
const BEFORE = /(?:\^ ?[{(]?|[\d)]\*\*|(?![0-9])\p{N})$/u;
const AFTER = /^(?: ?\^ ?\{?[-\u2212]?\w|\*\*\d|[A-Za-z]+\d|(?![0-9])\p{N})/u;

/** Rewrites of text before numbers are found in it, in this order. */
const REWRITES: readonly (readonly [RegExp, (match: string, ...groups: string[]) => string])[] = [
  [/[\uff01-\uff5e]/g, (wide) => String.fromCharCode(wide.charCodeAt(0) - 0xfee0)],
  [/[\u00bc-\u00be\u2150-\u215e]/g, (fraction) => ` ${fraction.normalize('NFKD')}`],
  // The exponent of a unit: 5 cm^2, 5\text{ cm}^2.
  [
    /(?<=\d) ?((?:\\(?:text|mathrm|,) ?\{? ?)?(?:[cdkm]?m|in|ft|yd|mi|s|units?)\}?)\^\{?[23]\}?(?!\d)/g,
    (_, unit) => ` ${unit}`,
  ],
  // A power of ten, alone or after a factor: 3 \times 10^{4}.
  [
    /(?:(?<=(\d)) ?(?:\\times|\\cdot|[\u00d7\u00b7*x]) ?)?(?<![\d.,])10 ?\^ ?(?:\{([-+\u2212]?\d{1,4})\}|([-+\u2212]?\d{1,4}))(?!\d|\.\d)/g,
    (_, factor = '', braced = '', exponent = '') => `${factor === '' ? '1' : ''}e${braced}${exponent}`,
  ],
  // Separators of groups: LaTeX's (10{,}000, 10,\!000, 10\,\!000, 10\ 000), and thin or no-break spaces.
  [
    /(?<=\d)(?:\{,\}(?=\d)|(?:\{\\,\}|,?(?:\\[!,;: ])+|\\thinspace |[\u00a0\u2009\u202f])(?=\d{3}(?!\d)))/g,
    (separator) => (/^\{?,/.test(separator) ? ',' : "'"),
  ],
  // Plain spaces: certain only if a group starts with 0.
  [
    /(?<![\w.,'\u2019])[1-9]\d{0,2}(?: \d{3})+(?!\d)/g,
    (groups) => groups.replaceAll(' ', / 0/.test(groups) ? "'" : UNSURE),
  ],
  // Mixed numbers: 3 1/2.
  [
    /(?<![\w.,'/^])(\d{1,9}) ([1-9]\d{0,8})[/\u2044](\d{1,9})(?!\d|[.,/\u2044])/g,
    (match, whole, a, b) => (BigInt(a) < BigInt(b) ? improper(whole, a, b) : match),
  ],
  // LaTeX's fractions, also without braces (\frac12), and the whole number before one.
  [
    /(?:(?<!\d)(\d{1,40}) ?)?\\[dt]?frac *(?:\{([^{}]*)\}|(\d)) *(?:\{([^{}]*)\}|(\d))/g,
    (_, whole = '', a = '', oneOfA = '', b = '', oneOfB = '') => improper(whole, a || oneOfA, b || oneOfB),
  ],
];

/** Maximum number of zeros to write out. A number with more zeros is written with an exponent. */
const MAX_ZEROS = 40;

/**
 * Returns the last number of a text, normalised; null if the text has no number, or if the last one has no certain value. "3.50" becomes
 * 3.5, "1e3" becomes 1000, and units, currency and "%" are ignored. A fraction, a/b or \frac{a}{b}, stays a fraction and is not reduced.
 * 3\frac{1}{2} is 7/2.
 */
export function lastNumber(text: string): string | null {
  const plainText = REWRITES.reduce((now, [pattern, by]) => now.replace(pattern, by), text);
  const found = [...plainText.matchAll(NUMBER)].at(-1);
  if (!found) return null;
  const [all, sign, innerSign = '', number, denominator] = found;
  const end = found.index + all.length;
  if (BEFORE.test(plainText.slice(Math.max(0, found.index - 3), found.index))) return null;
  if (AFTER.test(plainText.slice(end, end + 40))) return null;
  const [top, bottom] = [plain(number), denominator === undefined ? '' : plain(denominator)];
  if (top === null || bottom === null) return null;
  const value = bottom === '' ? top : `${top}/${bottom}`;
  return sign + innerSign === '' || value === '0' ? value : `-${value}`;
}

/** Returns a fraction as a/b. A whole number before it is added. */
function improper(whole: string, a: string, b: string): string {
  if (whole === '') return `${a}/${b}`;
  if (!/^\d+$/.test(a) || !/^\d+$/.test(b)) return `${whole} ${a}/${b}`;
  return `${BigInt(whole) * BigInt(b) + BigInt(a)}/${b}`;
}

/** Normalises a number, so that equal numbers become equal texts. Returns null if it has no certain value. */
function plain(written: string): string | null {
  const [mantissa, exponent = '0'] = written.replaceAll('\u2019', "'").replace('\u2212', '-').toLowerCase().split('e');
  const decimal = FORMS.find(([form]) => form.test(mantissa))?.[1];
  if (decimal === undefined || !Number.isSafeInteger(Number(exponent))) return null;
  const [whole, broken = ''] = mantissa.split(decimal).map((part) => part.replaceAll(/\D/g, ''));
  const all = (whole + broken).replace(/^0+/, '');
  const digits = all.replace(/0+$/, '');
  if (digits === '') return '0';
  const power = Number(exponent) - broken.length + (all.length - digits.length);
  if (Math.abs(power) > MAX_ZEROS) return `${digits}e${power}`;
  if (power >= 0) return digits + '0'.repeat(power);
  const point = digits.length + power;
  return point > 0 ? `${digits.slice(0, point)}.${digits.slice(point)}` : `0.${'0'.repeat(-point)}${digits}`;
}
