/** Finds and normalises the last number of a text. The reward `number` compares such numbers as texts, never as floats. */

const DIGITS = String.raw`(?:\d+(?:,\d+)*(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?`;
/**
 * Matches a number: sign, currency, digits with commas, decimal point, exponent and denominator. Matches nothing inside a word such as "m2"
 * or "CO2".
 */
const NUMBER = new RegExp(
  String.raw`((?:(?<![\w)\]])[-\u2212])?)(?<!\w)(?:[$\u20ac\u00a3\u00a5]([-\u2212]?))?(${DIGITS})(?:[/\u2044](${DIGITS}))?`,
  'gu',
);
/** Matches LaTeX's fractions, also without braces (\frac12), and the whole number before one. */
const FRACTION = /(?:(?<!\d)(\d+) ?)?\\[dt]?frac *(?:\{([^{}]*)\}|(\d)) *(?:\{([^{}]*)\}|(\d))/g;

/** Matches separators between groups of digits: LaTeX's (10{,}000, 10,\\!000, 10\\,\\!000, 10\\ 000), and thin or no-break spaces. */
const GROUPED = /(?<=\d)(?:\{\\?,\}|,?(?:\\[!,;: ])+|\\thinspace |[\u00a0\u2009\u202f])(?=\d{3}(?!\d))/g;

/** Maximum number of zeros to write out. A number with more zeros is written with an exponent. */
const MAX_ZEROS = 40;

/**
 * Returns the last number of a text, normalised; null if the text has no number. Commas between digits and currency signs are removed,
 * "3.50" becomes 3.5, "1e3" becomes 1000, U+2212 becomes a minus, and units and "%" after the number are ignored. A fraction, a/b or
 * \frac{a}{b}, stays a fraction and is not reduced. 3\frac{1}{2} is 7/2.
 */
export function lastNumber(text: string): string | null {
  const found = [...text.replace(GROUPED, ',').replace(FRACTION, fraction).matchAll(NUMBER)].at(-1);
  if (!found) return null;
  const [, sign, innerSign = '', number, denominator] = found;
  const value = plain(number) + (denominator === undefined ? '' : `/${plain(denominator)}`);
  return sign + innerSign === '' || value === '0' ? value : `-${value}`;
}

/** Returns a fraction of LaTeX as a/b. A whole number before it is added. */
function fraction(_: string, whole = '', a = '', oneOfA = '', b = '', oneOfB = ''): string {
  const [top, bottom] = [a || oneOfA, b || oneOfB];
  if (whole === '') return `${top}/${bottom}`;
  if (!/^\d+$/.test(top) || !/^\d+$/.test(bottom)) return `${whole} ${top}/${bottom}`;
  return `${BigInt(whole) * BigInt(bottom) + BigInt(top)}/${bottom}`;
}

/** Normalises a number, so that equal numbers become equal texts. */
function plain(written: string): string {
  const [mantissa, exponent = '0'] = written.replaceAll(',', '').toLowerCase().split('e');
  const [whole, broken = ''] = mantissa.split('.');
  const all = (whole + broken).replace(/^0+/, '');
  const digits = all.replace(/0+$/, '');
  if (digits === '') return '0';
  const power = Number(exponent) - broken.length + (all.length - digits.length);
  if (Math.abs(power) > MAX_ZEROS) return `${digits}e${power}`;
  if (power >= 0) return digits + '0'.repeat(power);
  const point = digits.length + power;
  return point > 0 ? `${digits.slice(0, point)}.${digits.slice(point)}` : `0.${'0'.repeat(-point)}${digits}`;
}
