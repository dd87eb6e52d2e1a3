/** Formats numbers for the page, reports and the command line. */

const MINUS = '\u2212';

/** Formats a number with about three significant digits, and without an exponent unless it is tiny. */
export function short(value: number): string {
  if (!Number.isFinite(value)) return String(value);
  return plain(value).replaceAll('-', MINUS);
}

function plain(value: number): string {
  const size = Math.abs(value);
  if (size >= 1000) return value.toLocaleString('en', { maximumFractionDigits: 0 });
  if (size >= 100) return value.toFixed(0);
  if (size >= 10) return value.toFixed(1);
  if (size >= 0.1 || size === 0) return value.toFixed(2);
  if (size >= 1e-4) return value.toFixed(Math.ceil(-Math.log10(size)) + 1);
  return value.toExponential(1);
}

/** Formats the values of an axis's labels with as many digits as are needed to tell them apart. */
export function ticks(values: readonly number[]): string[] {
  const step = values.length > 1 ? values[1] - values[0] : 1;
  const whole = (digits: number) => Math.abs(step * 10 ** digits - Math.round(step * 10 ** digits)) < 1e-6;
  const digits = [0, 1, 2, 3, 4, 5].find(whole);
  return values.map((value) => (digits === undefined ? short(value) : value.toFixed(digits).replace('-', MINUS)));
}

/** Formats a duration in milliseconds or seconds, whichever fits. */
export function duration(seconds: number): string {
  if (seconds < 0.9995) return `${short(seconds * 1000)} ms`;
  return seconds < 100 ? `${seconds.toFixed(1)} s` : `${seconds.toFixed(0)} s`;
}

/** Formats a number with its sign, for advantages and differences. */
export function signed(value: number): string {
  const text = short(Math.abs(value));
  if (Number(text) === 0) return '0';
  return (value > 0 ? '+' : MINUS) + text;
}

/** Formats seconds as m:ss or h:mm:ss. */
export function clock(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  const [h, m, s] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const two = (n: number) => String(n).padStart(2, '0');
  return h > 0 ? `${h}:${two(m)}:${two(s)}` : `${m}:${two(s)}`;
}

/** Formats a number with its noun: "1 step", "3 steps". */
export const plural = (n: number, noun: string): string => `${n} ${noun}${n === 1 ? '' : 's'}`;
