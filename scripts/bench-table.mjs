/** Writes the table of targets in docs/lab/performance.md from bench/results/*.json. A missing measurement is shown as "-". */

import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const RESULTS = join(ROOT, 'bench', 'results');
const PAGE = join(ROOT, 'docs', 'lab', 'performance.md');
const [START, END] = ['<!-- targets: node scripts/bench-table.mjs -->', '<!-- end of targets -->'];

/** @typedef {import('../bench/report.ts').Report} Report */

const share = (/** @type {number | undefined} */ x) => (x === undefined ? '-' : `${(100 * x).toFixed(1)}%`);
const times = (/** @type {number | undefined} */ x) => (x === undefined ? '-' : `${x.toPrecision(2)} x`);
const lowest = (/** @type {number[]} */ values) => (values.length > 0 ? Math.min(...values) : undefined);

/**
 * Measurements with their least and desired target, and a function that reads the measurement from a report.
 * @type {[what: string, least: string, aim: string, of: (report: Report) => string][]}
 */
const ROWS = [
  ['products of 256 and up, lowest share of peak', '75%', '85%', (r) => share(lowest(largeProducts(r)))],
  ['train step, share of peak', '40%', '60%', (r) => share(r.train?.shareOfPeak)],
  ['train step against jax-js', '4 x', '6 x', (r) => times(r.train?.ratio?.jaxjs)],
  ['train step against tfjs', '8 x', '12 x', (r) => times(r.train?.ratio?.tfjs)],
  ['decode, 64 sequences, share of peak', '40%', '60%', (r) => share(r.decode?.['64']?.shareOfPeak)],
  ['decode 64 against ONNX Runtime Web wasm', '1 x', '1.5 x', (r) => times(r.decode?.['64']?.ratio?.ortWasm)],
  ['decode 64 against ONNX Runtime Web WebGPU', '20 x', '40 x', (r) => times(r.decode?.['64']?.ratio?.ortWebgpu)],
  ['GRPO step, device idle', '8%', '3%', (r) => share(r.step?.idleShare)],
  ['train step outside products and attention', '30%', '20%', (r) => share(r.train?.shareOutsideProducts)],
  ['sharing a prompt, train step', '2.5 x', '3.5 x', (r) => times(r.prefixSharing?.speedup)],
];

/** @param {Report} report */
function largeProducts({ matmul = [] }) {
  return matmul.filter(({ m, n, k }) => Math.min(m, n, k) >= 256).flatMap(({ shareOfPeak }) => shareOfPeak ?? []);
}

function readReports() {
  if (!existsSync(RESULTS)) return [];
  const files = readdirSync(RESULTS).filter((file) => file.endsWith('.json'));
  return files.sort().map((file) => {
    const report = /** @type {Report} */ (JSON.parse(readFileSync(join(RESULTS, file), 'utf8')));
    return { name: file.replace('.json', ''), report };
  });
}

/** @param {{ name: string, report: Report }[]} reports */
function table(reports) {
  const line = (/** @type {string[]} */ cells) => `| ${cells.join(' | ')} |`;
  const head = ['', 'at least', 'aim', ...reports.map(({ name }) => name)];
  const rows = ROWS.map(([what, least, aim, of]) => line([what, least, aim, ...reports.map((r) => of(r.report))]));
  const load = (/** @type {Report} */ { conditions }) => conditions.loadAverage?.toFixed(1) ?? '-';
  const conditions = line(['load when the run began', '', '', ...reports.map((r) => load(r.report))]);
  return [line(head), line(head.map(() => '---')), ...rows, conditions].join('\n');
}

const page = readFileSync(PAGE, 'utf8');
const [before, rest] = page.split(START);
const after = rest?.split(END)[1];
if (after === undefined) throw new Error(`docs/lab/performance.md lacks the line ${START} or ${END}.`);
const reports = readReports();
const text = reports.length > 0 ? table(reports) : 'No complete run is stored yet. Run `npm run bench`.';
writeFileSync(PAGE, `${before}${START}\n\n${text}\n\n${END}${after}`);
process.stdout.write(`${text}\n`);
