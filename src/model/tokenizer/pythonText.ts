/**
 * Writes values of a chat template as Python does. Models are trained on texts that Jinja2 wrote, and the template library in JavaScript
 * writes some values differently: True, None, 1.0, 1e-07, lists and dictionaries.
 */

/** A value of the template library. */
export interface TemplateValue {
  type: string;
  value: unknown;
}

/** Settings of json.dumps. */
export interface JsonStyle {
  indent?: number | string | undefined;
  ensureAscii?: boolean;
  separators?: readonly string[] | undefined;
  sortKeys?: boolean;
}

/** Key of an object that stands for a number, with the text of the number as its value. */
const WRITTEN_NUMBER = '\u0000number';

/**
 * Parses JSON as Python does: 1.0 stays a float, and an integer beyond 2 ** 53 keeps its digits. Both become objects that templates write
 * as numbers. Throws SyntaxError for invalid JSON.
 */
export function parseAsWritten(text: string): unknown {
  const plain: unknown = JSON.parse(text);
  const marked = text.replace(/"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*/g, (token) =>
    token.startsWith('"') || (/^-?\d+$/.test(token) && Number.isSafeInteger(Number(token)))
      ? token
      : `{${JSON.stringify(WRITTEN_NUMBER)}:"${token}"}`,
  );
  return marked === text ? plain : JSON.parse(marked);
}

/** Returns the text of a number that `parseAsWritten` kept; undefined for other values. */
export function writtenNumber({ type, value }: TemplateValue): string | undefined {
  if (type !== 'ObjectValue') return undefined;
  return (value as Map<string, TemplateValue>).get(WRITTEN_NUMBER)?.value as string | undefined;
}

/** Returns `str(value)`; '' for an undefined value. */
export function pythonText(value: TemplateValue): string {
  if (value.type === 'UndefinedValue') return '';
  return value.type === 'StringValue' ? (value.value as string) : write(value, REPR, 0);
}

/** Returns `json.dumps(value)`, by default with `ensure_ascii=False`, as in transformers. */
export function pythonJson(value: TemplateValue, style: JsonStyle = {}): string {
  const { ensureAscii = false } = style;
  const text = (text: string) => {
    const json = JSON.stringify(text);
    return ensureAscii ? json.replace(/[\u007f-\uffff]/g, escaped) : json;
  };
  return write(value, { ...style, none: 'null', yes: 'true', no: 'false', text }, 0);
}

interface Style extends JsonStyle {
  none: string;
  yes: string;
  no: string;
  text(text: string): string;
}

const REPR: Style = { none: 'None', yes: 'True', no: 'False', text: repr };

function write(value: TemplateValue, style: Style, depth: number): string {
  const { type, value: held } = value;
  if (type === 'NullValue' || type === 'UndefinedValue') return style.none;
  if (type === 'BooleanValue') return held === true ? style.yes : style.no;
  if (type === 'StringValue') return style.text(held as string);
  if (type === 'FloatValue') return floatText(held as number);
  const number = writtenNumber(value);
  if (number !== undefined) return /^-?\d+$/.test(number) ? number : floatText(Number(number));
  if (Array.isArray(held)) {
    const items = (held as TemplateValue[]).map(inner);
    if (type !== 'TupleValue' || style !== REPR) return inBrackets('[]', items, style, depth);
    return `(${items.join(', ')}${items.length === 1 ? ',' : ''})`;
  }
  if (!(held instanceof Map)) return String(held);
  const [, colon = ': '] = style.separators ?? [];
  const entries = [...(held as Map<string, TemplateValue>)];
  if (style.sortKeys) entries.sort(([a], [b]) => (a < b ? -1 : 1));
  return inBrackets(
    '{}',
    entries.map(([key, of]) => `${style.text(key)}${colon}${inner(of)}`),
    style,
    depth,
  );

  function inner(of: TemplateValue): string {
    return write(of, style, depth + 1);
  }
}

function inBrackets([open, close]: string, items: string[], { indent, separators }: Style, depth: number): string {
  const [comma] = separators ?? [indent === undefined ? ', ' : ','];
  if (indent === undefined || items.length === 0) return `${open}${items.join(comma)}${close}`;
  const step = typeof indent === 'string' ? indent : ' '.repeat(indent);
  const line = `\n${step.repeat(depth)}`;
  const inside = `${line}${step}`;
  return `${open}${inside}${items.join(comma + inside)}${line}${close}`;
}

/** Returns `repr(number)` of a float: with an exponent from 1e16 on and below 1e-4, of at least two digits. */
function floatText(number: number): string {
  if (!Number.isFinite(number)) return Number.isNaN(number) ? 'nan' : number > 0 ? 'inf' : '-inf';
  const size = Math.abs(number);
  if (size >= 1e16 || (size > 0 && size < 1e-4)) return number.toExponential().replace(/e([+-])(\d)$/, 'e$10$2');
  if (Number.isInteger(number)) return `${Object.is(number, -0) ? '-' : ''}${number.toFixed(1)}`;
  return String(number);
}

/** Returns `repr(text)`. */
function repr(text: string): string {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const names: Record<string, string> = { '\n': '\\n', '\r': '\\r', '\t': '\\t', '\\': '\\\\', [quote]: `\\${quote}` };
  const inside = text.replace(
    /[\\'"\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu,
    (c) => names[c] ?? (/['"]/.test(c) ? c : hex(c)),
  );
  return `${quote}${inside}${quote}`;
}

function hex(character: string): string {
  const code = character.codePointAt(0)!;
  if (code < 256) return `\\x${code.toString(16).padStart(2, '0')}`;
  return code < 65536 ? escaped(character) : `\\U${code.toString(16).padStart(8, '0')}`;
}

const escaped = (unit: string): string => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`;

/** White space as in Python's str.strip(). */
const isSpace = (c: string): boolean => /\p{White_Space}/u.test(c) || (c >= '\u001c' && c <= '\u001f');

/** Removes characters at the start and the end of a text, like str.strip(). @param chars default: white space */
export function stripped(text: string, method: 'strip' | 'lstrip' | 'rstrip', chars?: string): string {
  const set = chars === undefined ? undefined : new Set(chars);
  const isIn = (c: string) => (set ? set.has(c) : isSpace(c));
  const all = [...text];
  let [from, to] = [0, all.length];
  if (method !== 'rstrip') while (from < to && isIn(all[from])) from++;
  if (method !== 'lstrip') while (to > from && isIn(all[to - 1])) to--;
  return all.slice(from, to).join('');
}

/** Returns `a == b`. */
export function pythonEquals(a: TemplateValue, b: TemplateValue): boolean {
  const [x, y] = [a.value, b.value];
  if (Array.isArray(x) && Array.isArray(y))
    return x.length === y.length && x.every((item: TemplateValue, i) => pythonEquals(item, y[i] as TemplateValue));
  if (x instanceof Map && y instanceof Map)
    return (
      x.size === y.size &&
      [...(x as Map<string, TemplateValue>)].every(([key, item]) => {
        const other = (y as Map<string, TemplateValue>).get(key);
        return other !== undefined && pythonEquals(item, other);
      })
    );
  const isNumber = (of: unknown) => typeof of === 'number' || typeof of === 'boolean';
  return isNumber(x) && isNumber(y) ? Number(x) === Number(y) : x === y && a.type === b.type;
}

/** Returns `text.capitalize()`: the first character in upper case, the others in lower case. */
export const capitalized = (text: string): string =>
  text.replace(/^(.?)(.*)$/su, (_, first: string, rest: string) => first.toUpperCase() + rest.toLowerCase());

/** Returns `time.strftime(format)` in English. Throws Error for a directive that is not known here. */
export function pythonTime(format: string, time: Date): string {
  const name = (options: Intl.DateTimeFormatOptions) => time.toLocaleString('en-US', options);
  const [year, hour] = [time.getFullYear(), time.getHours()];
  const days =
    (new Date(year, time.getMonth(), time.getDate(), 12).getTime() - new Date(year, 0, 0, 12).getTime()) / 864e5;
  const two = (value: number) => String(value).padStart(2, '0');
  const parts: Record<string, string> = {
    ...{ Y: String(year), y: two(year % 100), m: two(time.getMonth() + 1), d: two(time.getDate()) },
    ...{ e: String(time.getDate()).padStart(2), j: String(Math.round(days)).padStart(3, '0'), '%': '%' },
    ...{ H: two(hour), I: two(hour % 12 || 12), M: two(time.getMinutes()), S: two(time.getSeconds()) },
    ...{ p: hour < 12 ? 'AM' : 'PM', B: name({ month: 'long' }), b: name({ month: 'short' }) },
    ...{ A: name({ weekday: 'long' }), a: name({ weekday: 'short' }) },
  };
  return format.replace(/%(-?)([^]?)/g, (directive, minus, letter: string) => {
    const text = parts[letter];
    if (text === undefined) throw new Error(`it asks for the time as ${directive}, which is not known here`);
    return minus ? text.replace(/^[0 ]+(?=.)/, '') : text;
  });
}
