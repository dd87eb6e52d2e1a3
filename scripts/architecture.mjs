/**
 * Draws docs/images/architecture.svg from the imports: the modules, their folders, and which module imports which.
 *
 *   node scripts/architecture.mjs            writes the picture
 *   node scripts/architecture.mjs --check    exits with 1 if the committed picture differs from what it would write
 *
 * The numbers in the picture refer to the steps of README's list "How one training step reads".
 */

import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const PICTURE = join(ROOT, 'docs', 'images', 'architecture.svg');

/** Modules in reading order, with their purpose. The script fails if the source has a module that is missing here. */
const MODULES = new Map([
  ['demo', 'the page: charts, rollouts, start and stop'],
  ['cli', 'the commands'],
  ['library', 'src/index.ts: what a program imports from "webgrpo"'],
  ['report', 'HTML pages of a run: curves, rollouts, profile'],
  ['ui', 'what the page and the reports share: elements, numbers, charts, colours'],
  ['extensions', 'what a step does not need: learner, client, replay, rooms, MCP, ...'],
  ['runs', 'run folders and their checkpoints'],
  ['workers', 'the thread that owns the GPU device'],
  ['grpo', 'the algorithm: one training step, losses, advantages, settings'],
  ['rollout', 'generation: agent loops, tool calls, continuous batching, KV cache'],
  ['tasks', 'problems, tools, rewards'],
  ['model', 'the transformer: forward, backward, AdamW, checkpoints, tokenizer'],
  ['gpu', 'the device: buffers, pipelines, one typed wrapper an operation'],
  ['kernels', 'WGSL, one operation a file; printers where a tile must be written out'],
]);

/** @typedef {Map<string, Set<string>>} Graph maps each importer to the nodes that it imports */

/** Returns the module of a file, and its folder inside the module if it has one. @param {string} file */
function placeOf(file) {
  const parts = file.split('/');
  if (parts[0] !== 'src') return MODULES.has(parts[0]) ? { room: parts[0] } : {};
  if (file === 'src/index.ts') return { room: 'library' };
  // errors.ts, yaml.ts and the like, which every module can import.
  if (parts.length === 2) return {};
  return parts.length === 3 ? { room: parts[1] } : { room: parts[1], folder: parts[2] };
}

/** Returns the files that a file imports or exports from, inside the repository. @param {string} file */
function importsOf(file) {
  const text = readFileSync(join(ROOT, file), 'utf8');
  return [...text.matchAll(/(?:from|import\(|import) ?'(\.[^'?]+)(?:\?[\w-]+)?'/g)].map((match) =>
    normalize(join(dirname(file), match[1])).replaceAll('\\', '/'),
  );
}

function readImports() {
  const files = ['src', 'demo', 'kernels'].flatMap((top) =>
    readdirSync(join(ROOT, top), { recursive: true, encoding: 'utf8' })
      .map((file) => `${top}/${file.replaceAll('\\', '/')}`)
      .filter((file) => file.endsWith('.ts') && !file.endsWith('.d.ts')),
  );
  /** @type {Graph} */
  const rooms = new Map([['kernels', new Set()]]);
  /** @type {Map<string, Graph>} */
  const folders = new Map();
  for (const file of files.sort()) {
    const from = placeOf(file);
    if (!from.room) continue;
    const importers = at(rooms, from.room, () => new Set());
    const inside = at(folders, from.room, () => new Map());
    if (from.folder) at(inside, from.folder, () => new Set());
    for (const target of importsOf(file)) {
      const to = placeOf(target);
      if (!to.room) continue;
      if (to.room !== from.room) importers.add(to.room);
      else if (from.folder && to.folder && to.folder !== from.folder) inside.get(from.folder)?.add(to.folder);
    }
  }
  return { rooms, folders };
}

/** @template K, V @param {Map<K, V>} map @param {K} key @param {() => V} make @returns {V} */
function at(map, key, make) {
  const value = map.get(key) ?? make();
  map.set(key, value);
  return value;
}

/** Returns all nodes that a node reaches over one or more imports. @param {Graph} graph @param {string} start */
function reach(graph, start) {
  const seen = new Set();
  const open = [...(graph.get(start) ?? [])];
  for (let node = open.pop(); node !== undefined; node = open.pop()) {
    if (seen.has(node)) continue;
    seen.add(node);
    open.push(...(graph.get(node) ?? []));
  }
  return seen;
}

/** Returns the arrows that no chain of other arrows implies (transitive reduction). @param {Graph} graph @returns {Graph} */
function reduced(graph) {
  return new Map(
    [...graph].map(([from, targets]) => {
      const implied = new Set([...targets].flatMap((target) => [...reach(graph, target)]));
      if (implied.has(from))
        throw new Error(`Module "${from}" imports itself through others; the test of layers names the files.`);
      return [from, new Set([...targets].filter((target) => !implied.has(target)))];
    }),
  );
}

/**
 * Sorts the folders of a module so that each imports only those after it. Folders that import each other form one group.
 * @param {Graph} graph @returns {string[][]}
 */
function inOrder(graph) {
  const reached = new Map([...graph.keys()].map((folder) => [folder, reach(graph, folder)]));
  const size = (/** @type {string} */ folder) => reached.get(folder)?.size ?? 0;
  const names = [...graph.keys()].sort((a, b) => size(b) - size(a) || (a < b ? -1 : 1));
  /** @type {string[][]} */
  const groups = [];
  for (const name of names) {
    const mutual = groups.find(([other]) => reached.get(other)?.has(name) && reached.get(name)?.has(other));
    if (mutual) mutual.push(name);
    else groups.push([name]);
  }
  return groups;
}

/** Returns README's step numbers by module or `module/folder`. @returns {Map<string, string[]>} */
function readStations() {
  const section = /## How one training step reads([\s\S]*?)\n## /.exec(
    readFileSync(join(ROOT, 'README.md'), 'utf8'),
  )?.[1];
  const stations = new Map();
  for (const [, number, file] of (section ?? '').matchAll(/^(\d+)\. .*?\]\(([^)]+)\)/gm)) {
    const { room, folder } = placeOf(file);
    at(stations, folder ? `${room}/${folder}` : `${room}`, () => []).push(number);
  }
  return stations;
}

// --- Drawing. Fonts cannot be measured here, so texts are monospaced or have space to spare.

const [WIDTH, MARGIN, GAP, LEVEL_GAP, PAD] = [900, 16, 16, 30, 12];
const [NAME, FOLDER, SANS, LINE, CHIP] = [9.1, 7.25, 7.3, 18, 24];

const STYLE = `
  .page { fill: #ffffff } .room { fill: #f4f6f9; stroke: #b4bfcc } .chip { fill: #ffffff; stroke: #8797a8 } .mutual { fill: #dfe6ee }
  text { fill: #1c2733; font: 13px system-ui, -apple-system, 'Segoe UI', sans-serif }
  .folder { font: 12px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace }
  .name { font: 600 15px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace }
  .arrow { stroke: #5a6b7d; stroke-width: 1.6; fill: none } .head { fill: #5a6b7d }
  .dot { fill: #1f6feb } .number { fill: #ffffff; font-size: 11px; font-weight: 600; text-anchor: middle }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117 } .room { fill: #161c25; stroke: #3d4958 } .chip { fill: #0d1117; stroke: #627386 } .mutual { fill: #263241 }
    text { fill: #dce4ec } .arrow { stroke: #93a4b6 } .head { fill: #93a4b6 } .dot { fill: #388bfd }
  }`;

/** @param {string} text */
const escaped = (text) => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('"', '&quot;');
/** @param {string} kind @param {number} x @param {number} y @param {string} text */
const write = (kind, x, y, text) => `<text class="${kind}" x="${x}" y="${y}">${escaped(text)}</text>`;
/** @param {string} kind @param {number} x @param {number} y @param {number} w @param {number} h */
const rect = (kind, x, y, w, h) => `<rect class="${kind}" x="${x}" y="${y}" width="${w}" height="${h}" rx="5"/>`;
/** @param {number} x @param {number} y @param {string} number */
const dot = (x, y, number) =>
  `<circle class="dot" cx="${x}" cy="${y}" r="8"/><text class="number" x="${x}" y="${y + 4}">${number}</text>`;
/** @param {number} x @param {number} y @param {readonly string[]} numbers */
const dots = (x, y, numbers) => numbers.map((number, i) => dot(x + 18 * i, y, number));

/**
 * Breaks a sentence into lines; the first line is next to the module's name. @param {string} text @param {number} first @param {number}
 * rest
 */
function wrapped(text, first, rest) {
  const lines = [''];
  for (const word of text.split(' ')) {
    const line = `${lines.at(-1)} ${word}`.trim();
    if (SANS * line.length <= (lines.length === 1 ? first : rest)) lines[lines.length - 1] = line;
    else lines.push(word);
  }
  return lines;
}

/**
 * Draws the inside of a module from its corner (0, 0). @param {string} room @param {number} width @param {string[][]} groups @param
 * {Map<string, string[]>} stations
 */
function drawRoom(room, width, groups, stations) {
  const parts = [write('name', PAD, 22, room)];
  const own = stations.get(room) ?? [];
  let x = Math.round(PAD + NAME * room.length + 10);
  parts.push(...dots(x + 6, 17, own));
  x += 18 * own.length + (own.length > 0 ? 4 : 0);
  let y = 22;
  for (const line of wrapped(MODULES.get(room) ?? '', width - PAD - x, width - 2 * PAD)) {
    parts.push(write('', x, y, line));
    [x, y] = [PAD, y + LINE];
  }
  [x, y] = [PAD, y - LINE + 12];
  for (const group of groups) {
    const chips = group.map((name) => ({ name, numbers: stations.get(`${room}/${name}`) ?? [] }));
    const widths = chips.map(({ name, numbers }) => Math.round(FOLDER * name.length + 18 + 18 * numbers.length));
    const total = widths.reduce((sum, w) => sum + w, 0);
    if (x > PAD && x + total > width - PAD) [x, y] = [PAD, y + CHIP + 8];
    if (group.length > 1) parts.push(rect('mutual', x - 4, y - 4, total + 8, CHIP + 8));
    for (const [i, { name, numbers }] of chips.entries()) {
      parts.push(rect('chip', x, y, widths[i], CHIP), write('folder', x + 9, y + 16, name));
      parts.push(...dots(Math.round(x + FOLDER * name.length + 21), y + 12, numbers));
      x += widths[i];
    }
    x += 12;
  }
  return { parts, height: groups.length > 0 ? y + CHIP + PAD : y };
}

/** @typedef {{ room: string, x: number, y: number, w: number, h: number, parts: string[] }} Box */

/**
 * Returns the modules in levels, importers on top. A module is one level above the highest module that it imports.
 * @param {Graph} arrows
 */
function levelsOf(arrows) {
  /** @type {(room: string) => number} */
  const level = (room) => Math.max(-1, ...[...(arrows.get(room) ?? [])].map(level)) + 1;
  /** @type {string[][]} */
  const levels = [];
  for (const room of [...MODULES.keys()].filter((name) => arrows.has(name))) (levels[level(room)] ??= []).push(room);
  return levels.reverse();
}

/** @param {number} x @param {Box} box */
const within = (x, box) => Math.min(Math.max(x, box.x + 24), box.x + box.w - 24);

/** Draws an arrow: vertical if the boxes overlap horizontally, otherwise slanted. @param {Box} from @param {Box} to */
function drawArrow(from, to) {
  const [left, right] = [Math.max(from.x, to.x), Math.min(from.x + from.w, to.x + to.w)];
  const aim = left < right ? (left + right) / 2 : undefined;
  const [x1, x2] = [aim ?? within(to.x + to.w / 2, from), aim ?? within(from.x + from.w / 2, to)].map(Math.round);
  return `<path class="arrow" marker-end="url(#head)" d="M${x1} ${from.y + from.h}L${x2} ${to.y - 2}"/>`;
}

function draw() {
  const { rooms, folders } = readImports();
  const unknown = [...rooms.keys()].filter((room) => !MODULES.has(room));
  if (unknown.length > 0) throw new Error(`Say in scripts/architecture.mjs what is in: ${unknown.join(', ')}.`);
  const [arrows, stations] = [reduced(rooms), readStations()];
  /** @type {Box[]} */
  const boxes = [];
  let y = MARGIN;
  for (const row of levelsOf(arrows)) {
    const w = (WIDTH - 2 * MARGIN - GAP * (row.length - 1)) / row.length;
    const drawn = row.map((room) => ({
      room,
      ...drawRoom(room, w, inOrder(folders.get(room) ?? new Map()), stations),
    }));
    const h = Math.max(...drawn.map((box) => box.height));
    for (const [i, { room, parts }] of drawn.entries()) boxes.push({ room, x: MARGIN + i * (w + GAP), y, w, h, parts });
    y += h + LEVEL_GAP;
  }
  const byName = new Map(boxes.map((box) => [box.room, box]));
  const lines = [...arrows].flatMap(([from, targets]) =>
    [...targets].map((to) => drawArrow(/** @type {Box} */ (byName.get(from)), /** @type {Box} */ (byName.get(to)))),
  );
  const height = y - LEVEL_GAP + MARGIN;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" role="img">`,
    '<title>Rooms of webgrpo and which of them import which, drawn by scripts/architecture.mjs</title>',
    `<style>${STYLE}\n</style>`,
    '<marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">',
    '<path class="head" d="M0 0L10 5L0 10z"/></marker>',
    rect('page', 0, 0, WIDTH, height),
    ...boxes.flatMap(({ x, y: top, w, h, parts }) => [
      rect('room', x, top, w, h),
      `<g transform="translate(${x} ${top})">`,
      ...parts,
      '</g>',
    ]),
    ...lines,
    '</svg>\n',
  ].join('\n');
}

const picture = draw();
if (!process.argv.includes('--check')) writeFileSync(PICTURE, picture);
else if (!existsSync(PICTURE) || readFileSync(PICTURE, 'utf8') !== picture) {
  process.stderr.write('docs/images/architecture.svg is not current. Run: node scripts/architecture.mjs\n');
  process.exitCode = 1;
}
