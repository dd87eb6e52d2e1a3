/**
 * Answers to the exercises of the lessons that a reader could give besides those of the exercises: right ones in another form, and wrong
 * ones, each with a part of the sentence that the reader should get.
 */

import loop from '../../demo/lessons/3-run/run.js?raw';

interface Answers {
  right: readonly string[];
  wrong: readonly (readonly [given: string, says: RegExp])[];
}

const fn = (head: string) => (body: string) => `export function ${head} {\n${body}\n}\n`;

const advantages = fn('advantages(rewards)');
const KNOWN = `  const known = rewards.filter((r) => !Number.isNaN(r));
  const mean = known.reduce((a, b) => a + b, 0) / known.length;
  const squares = known.reduce((a, r) => a + (r - mean) ** 2, 0);
  const spread = Math.sqrt(squares / (known.length - 1));
`;
const eachAdvantage = (value: string) => advantages(`${KNOWN}  return rewards.map((r) => ${value});`);

const loss = fn('loss({ advantage: A, ratio: r, logProb, oldLogProb, clipLow, clipHigh })');
const BOUNDED = '  const bounded = Math.min(Math.max(r, 1 - clipLow), 1 + clipHigh);\n  return';

const mask = fn('mask(tokens)');
const reward = fn('reward({ text, answer })');
const weights = fn('weights(now, drawn, cap)');
const interval = fn('interval(outcomes)');
const RATES = `  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const rates = outcomes.map(mean);
  const N = rates.length;
  const p = mean(rates);
  const variance = mean(rates.map((rate) => (rate - p) ** 2));
  const n = variance > 0 ? (p * (1 - p) * (N - 1)) / variance : N;
`;
const passAtK = fn('passAtK(n, c, k)');
const gradient = fn('gradient(x, weight, dy, eps)');
const ROOT = `  const n = x.length;
  const rstd = (n / (x.reduce((a, v) => a + v * v, 0) + n * eps)) ** 0.5;
`;

const COMPARE = /const advantages = .*; \/\/ compare/;
const NUDGE = /const \{ gradNorm \} = .*; \/\/ nudge/;
const compare = (line: string) => loop.replace(COMPARE, line);
const nudge = (line: string) => loop.replace(NUDGE, line);

/** By the id of the exercise. */
export const ANSWERS: Readonly<Record<string, Answers>> = {
  '1.1': {
    right: [
      `export const advantages = (rewards) => {
  let [n, mean, squares] = [0, 0, 0]; // Welford
  for (const r of rewards) {
    if (r !== r) continue;
    const off = r - mean;
    mean += off / ++n;
    squares += off * (r - mean);
  }
  const spread = n > 1 ? Math.sqrt(squares / (n - 1)) : 0;
  return rewards.map((r) => (r !== r || spread < 1e-6 ? 0 : (r - mean) / spread));
};`,
      `${advantages(`${KNOWN}  return Array.from(rewards, (r) => (r - mean) / (spread + 1e-6) || 0);`)}`,
      `function advantages(rewards) {
  const out = new Float64Array(rewards.length);
${KNOWN}  for (let i = 0; i < out.length; i++) if (spread > 0 && !isNaN(rewards[i])) out[i] = (rewards[i] - mean) / spread;
  return out;
}
export { advantages };`,
      advantages(`  const known = rewards.filter(Number.isFinite);
  let pairs = 0;
  for (const a of known) for (const b of known) pairs += (a - b) ** 2;
  const spread = Math.sqrt(pairs / 2 / known.length / (known.length - 1));
  const mean = known.reduce((a, b) => a + b, 0) / known.length;
  return rewards.map((r) => (spread > 0 && Number.isFinite(r) ? Math.round((1000 * (r - mean)) / spread) / 1000 : 0));`),
    ],
    wrong: [
      [eachAdvantage('spread > 0 && r === r ? (r - mean) / spread ** 2 : 0'), /^For the rewards .*yours gives \[7/],
      [eachAdvantage('spread > 0 && r === r ? r / spread : 0'), /^For the rewards /],
      [eachAdvantage('spread > 0 && r === r ? (mean - r) / spread : 0'), /yours gives \[-2\.475/],
      [eachAdvantage('r === r ? r - mean : 0'), /yours gives \[0\.875, -0\.125/],
      [eachAdvantage('(spread > 0 ? (r - mean) / spread : 0)'), /are right\. Give 0 to a try without one/],
      [
        eachAdvantage('(r !== r ? 0 : spread > 0 ? (r - mean) / spread : r)'),
        /^All 8 tries earned 1, and yours gives \[1\]\. What can/,
      ],
      [
        eachAdvantage('(r !== r || (known.length > 1 && !spread) ? 0 : (r - mean) / spread)'),
        /one try has a reward, and yours gives it NaN\. It has nothing/,
      ],
      [
        eachAdvantage('(spread > 0 && r === r ? (r - mean) / spread : 0)').replace(
          'rewards.filter((r) => !Number.isNaN(r))',
          'rewards.map((r) => r || 0)',
        ),
        /^For the rewards \[.*NaN/,
      ],
      [eachAdvantage('((r - mean) / spread).toFixed(3)'), /Return numbers only/],
      [advantages('  rewards.sort();'), /returned null\. Return a list/],
    ],
  },
  '2.1': {
    right: [
      loss(`${BOUNDED} -Math.min(A * r, A * bounded);`),
      loss(`  if (A > 0 && r > 1 + clipHigh) return -A * (1 + clipHigh);
  if (A < 0 && r < 1 - clipLow) return -A * (1 - clipLow);
  return -A * r;`),
      loss(`  const ratio = Math.exp(logProb - oldLogProb);
  const held = A > 0 ? ratio > 1 + clipHigh : ratio < 1 - clipLow;
  const bound = A > 0 ? 1 + clipHigh : 1 - clipLow;
  return held ? { loss: -A * bound, grad: 0 } : { loss: -A * ratio, grad: -A * ratio };`),
    ],
    wrong: [
      [loss('  return Math.max(-A * r, -A * Math.min(Math.max(r, 1 - clipLow), 1 + clipLow));'), /^At advantage /],
      [loss(`${BOUNDED} Math.min(Math.max(-A * r, -A * bounded), A < 0 ? -3 * A : Infinity);`), /dual clip/],
      [loss('  return -A * logProb;'), /^At advantage .*The library has/],
      [loss('  return -r;'), /^At advantage /],
      [loss(`${BOUNDED} Math.min(A * r, A * bounded);`), /^The sign is missing/],
      [loss(`${BOUNDED} { loss: Math.max(-A * r, -A * bounded), grad: -A };`), /^At advantage .*slope/],
      [
        loss(`${BOUNDED} { loss: Math.max(-A * r, -A * bounded) };`),
        /loss returned undefined as grad\. Return a number/,
      ],
      [loss('  return NaN;'), /loss returned NaN\. Return a number/],
    ],
  },
  '2.3': {
    right: [
      loss(`${BOUNDED} { grad: -A * bounded, loss: -A * bounded * logProb };`),
      loss(`  let w = r;
  if (w > 1 + clipHigh) w = 1 + clipHigh;
  else if (w < 1 - clipLow) w = 1 - clipLow;
  const grad = 0 - w * A;
  return { loss: grad * logProb, grad };`),
      `export const loss = ({ advantage, logProb, oldLogProb, clipLow, clipHigh }) => {
  const [low, high] = [1 - clipLow, 1 + clipHigh];
  const [, weight] = [low, Math.exp(logProb - oldLogProb), high].sort((a, b) => a - b);
  return { loss: -weight * advantage * logProb, grad: -weight * advantage };
};`,
    ],
    wrong: [
      [loss('  return { loss: -r * A * logProb, grad: -r * A };'), /^At advantage /],
      [loss(`${BOUNDED} { loss: -bounded * A * logProb, grad: bounded * A };`), /^At advantage /],
      [loss(`${BOUNDED} { loss: -bounded * A, grad: -bounded * A };`), /^At advantage /],
      [loss(`${BOUNDED} { loss: -bounded * A * logProb, grad: 0 };`), /^At advantage /],
      [loss(`${BOUNDED} { loss: -bounded * A * logProb };`), /undefined as grad/],
    ],
  },
  '3.1': {
    right: [
      nudge('const gradNorm = (await learner.optimStep({ lr })).gradNorm;'),
      compare(`const advantages = tries.map((one, i) => {
      const own = rewards.filter((_, k) => groups[k] === one.group);
      const mean = own.reduce((a, b) => a + b, 0) / own.length;
      return rewards[i] - mean;
    });`),
      compare("const advantages = computeAdvantages('rloo', { rewards, groups, masks });"),
    ],
    wrong: [
      [
        compare("const advantages = computeAdvantages('grpo', { rewards: rewards.map((r) => -r), groups, masks });"),
        /higher reward got a lower advantage/,
      ],
      [
        compare("const advantages = computeAdvantages('grpo', { rewards: rewards.toReversed(), groups, masks });"),
        /higher reward got a lower advantage/,
      ],
      [
        compare("const advantages = computeAdvantages('grpo', { rewards, groups: groups.map(() => 0), masks });"),
        /add up to 0\. Each try is compared with its own group\. Yours add up to/,
      ],
      [compare('const advantages = rewards.map(() => 0);'), /no weight moved\. Is every advantage 0/],
      [compare('const advantages = rewards.map(() => NaN);'), /advantage|finite/],
      [compare("const advantages = computeAdvantages('grop', { rewards, groups, masks });"), /grop/],
      [compare(''), /^Line \d+: ReferenceError: advantages is not defined/],
      [nudge('const { gradNorm } = learner.optimStep({ lr });'), /show got undefined as gradNorm\. Write/],
      [nudge('const gradNorm = await learner.optimStep({ lr });'), /show got .* as gradNorm\. Write/],
      [
        nudge('await learner.optimStep({ lr }); const { gradNorm } = await learner.optimStep({ lr });'),
        /there is no gradient/,
      ],
      [nudge('const { gradNorm } = await learner.optimStep({ lr: 0 });'), /lr" is 0/],
      [
        nudge('const { gradNorm } = await learner.optimStep({ lr: 1 });'),
        /^A weight moved by .* Pass \{ lr \} to optimStep/,
      ],
      [nudge("throw new Error('boom');"), /^Line \d+: Error: boom/],
    ],
  },
  '4.1': {
    right: [
      mask("  return tokens.map((token) => token.by === 'model');"),
      mask("  const out = [];\n  for (const { by } of tokens) out.push(Number(by === 'model'));\n  return out;"),
      mask("  return Uint8Array.from(tokens, ({ by }) => (['prompt', 'tool', 'template'].includes(by) ? 0 : 1));"),
    ],
    wrong: [
      [mask('  return tokens.map(() => 0);'), /^No token is trained/],
      [mask("  return tokens.map(({ by }) => (by === 'model' ? 1 : 0.5));"), /has the value 0\.5\. A mask has 0 and 1/],
      [mask("  return tokens.map(({ by }) => (by === 'model' ? 1 : -1));"), /has the value -1\. A mask has 0 and 1/],
      [
        mask(
          "  const last = tokens.findLastIndex(({ by }) => by === 'template');\n  return tokens.map(({ by }, t) => (by === 'model' && t < last ? 1 : 0));",
        ),
        /is left out, in the last turn/,
      ],
      [mask("  return tokens.map(({ text }) => (text === '<|im_end|>' ? 1 : 0));"), /left out/],
      [
        mask("  return tokens.map(({ by }) => (by === 'model' || by === 'template' ? 1 : 0));"),
        /the model did not write it/,
      ],
      [mask("  return tokens.filter(({ by }) => by === 'model').map(() => 1);"), /returned \d+ values\. Return a list/],
      [mask("  return tokens.map(({ by }) => (by === 'tool' ? 0 : 1));"), /the model did not write it/],
    ],
  },
  '4.2': {
    right: [
      reward(`  const lines = text.split('\\n').filter((line) => line.startsWith('#### '));
  const last = lines.pop() ?? '';
  return last.slice(5).split(' ')[0].split(',').join('') === answer;`),
      reward(`  let paid = 0;
  const find = /#### (-?[0-9.,]+)/g;
  for (let found = find.exec(text); found; found = find.exec(text)) paid = found[1].replace(/,/g, '') === answer ? 1 : 0;
  return paid;`),
      reward(`  const at = text.lastIndexOf('#### ');
  const number = at < 0 ? NaN : parseFloat(text.slice(at + 5).replaceAll(',', ''));
  return number === Number(answer) ? 1 : 0;`),
    ],
    wrong: [
      [reward("  return text.includes('#### ' + answer) ? 1 : 0;"), /^Pays for 99/],
      [reward("  return text.endsWith('#### ' + answer) ? 1 : 0;"), /1,234|apples/],
      [reward("  return text.startsWith('#### ') ? 1 : 0;"), /^Pays for 99/],
      [
        reward("  return parseFloat(text.split('#### ').at(-1).replaceAll(',', '')) === Number(answer) ? 1 : 0;"),
        /list of numbers/,
      ],
      [
        reward(
          "  const all = text.replaceAll(',', '').match(/#### -?\\d+/g) ?? [''];\n  return Number(all.at(-1).slice(5)) === Number(answer) && all[0] ? 1 : 0;",
        ),
        /^Pays for 9\.5/,
      ],
      [reward('  return text === `#### ${answer}` ? 0.5 : 0;'), /returned 0\.5\. The task pays 1 or 0/],
      [reward('  return text.match(/#### (.*)/g)?.at(-1)?.slice(5) === answer ? 1 : 0;'), /1,234|apples/],
      [reward('  return 0;'), /^A right answer earns nothing/],
      [reward('  text;'), /reward returned null\. The task pays 1 or 0/],
    ],
  },
  '5.2': {
    right: [
      weights(
        '  const out = [];\n  for (let t = 0; t < now.length; t++) {\n    const w = Math.E ** (now[t] - drawn[t]);\n    out[t] = w > cap ? cap : w;\n  }\n  return out;',
      ),
      weights('  return Float64Array.from(now, (p, t) => Math.min(Math.exp(p) / Math.exp(drawn[t]), cap));'),
      weights('  return now.map((p, t) => Math.exp(Math.min(p - drawn[t], Math.log(cap))));'),
    ],
    wrong: [
      [weights('  return now.map((p, t) => p - drawn[t]);'), /^Token \d+ of all .*Its weight is/],
      [weights('  return now.map((p, t) => Math.exp(Math.min(p - drawn[t], cap)));'), /^Token \d+ of all|^No cap/],
      [weights('  return now.map((p, t) => Math.exp(drawn[t] - p));'), /^Upside down/],
      [weights('  return now.map((p, t) => Math.min(Math.max(Math.exp(p - drawn[t]), 1 / cap), cap));'), /^Token \d+/],
      [weights('  return now.map((p, t) => Number(Math.min(Math.exp(p - drawn[t]), cap).toFixed(3)));'), /^Token \d+/],
      [
        weights(
          '  const mean = now.reduce((so, p, t) => so + p - drawn[t], 0) / now.length;\n  return now.map(() => Math.min(Math.exp(mean), cap));',
        ),
        /^Token \d+/,
      ],
      [weights('  return Math.exp(now[0] - drawn[0]);'), /Return a list with a weight for each token/],
    ],
  },
  '6.1': {
    right: [
      interval(`${RATES}  const z = 1.959964;
  const centre = (n * p + (z * z) / 2) / (n + z * z); // Agresti and Coull
  const half = z * Math.sqrt((centre * (1 - centre)) / (n + z * z));
  return [Math.max(0, centre - half), Math.min(1, centre + half)];`),
      interval(`${RATES}  // Wilson's ends solve (x - p)^2 = 1.96^2 x (1 - x) / n.
  const s = 1.96 ** 2 / n;
  const [a, b, c] = [1 + s, -(2 * p + s), p * p];
  const root = Math.sqrt(b * b - 4 * a * c);
  return [(-b - root) / (2 * a), (-b + root) / (2 * a)];`),
      interval(`${RATES}  const m = outcomes[0].length;
  const within = p * (1 - p);
  const inflated = within > 0 ? (variance * N) / (N - 1) / (within / m) : m; // the design effect
  const k = (N * m) / inflated;
  const middle = (p + 1.92 / k) / (1 + 3.84 / k);
  const half = (1.96 / (1 + 3.84 / k)) * Math.sqrt((p * (1 - p)) / k + 0.96 / k ** 2);
  return [middle - half, middle + half];`),
    ],
    wrong: [
      [interval('  return [0, 1];'), /in 400 of 400 evaluations, which is too often\. It is wider/],
      [interval(`${RATES}  return [p, p];`), /64 of 64 right gives 1 to 1|too rarely/],
      [interval('  return [0.1, 0.2];'), /in 0 of 400 evaluations, which is too rarely/],
      [
        interval(
          `${RATES}  const half = 1.2 * Math.sqrt((p * (1 - p)) / n);\n  return [Math.min(p - half, 0.95), p + half];`,
        ),
        /too rarely/,
      ],
      [interval('  return { low: 0, high: 1 };'), /Return a list with the lower and the upper end/],
      [interval(`${RATES}  return [p + 0.1, p - 0.1];`), /Return a list/],
      [interval('  const [[one]] = outcomes;\n  return [one / 0 - one / 0, 1];'), /Return a list/],
    ],
  },
  '6.2': {
    right: [
      passAtK(
        '  if (n - c < k) return 1;\n  let miss = 1;\n  for (let i = n - c + 1; i <= n; i++) miss *= 1 - k / i;\n  return 1 - miss;',
      ),
      passAtK(`  const choose = (m, j) => {
    let product = 1n;
    for (let i = 0n; i < BigInt(j); i++) product = (product * (BigInt(m) - i)) / (i + 1n);
    return product;
  };
  if (k > n - c) return 1;
  const scale = 10n ** 15n;
  return 1 - Number((choose(n - c, k) * scale) / choose(n, k)) / 1e15;`),
      passAtK(
        '  const missed = (left, wrong, j) => (j === 0 ? 1 : wrong <= 0 ? 0 : (wrong / left) * missed(left - 1, wrong - 1, j - 1));\n  return 1 - missed(n, n - c, k);',
      ),
    ],
    wrong: [
      [passAtK('  return (c / n) * k;'), /^For n = /],
      [passAtK('  return Math.min(1, (c * k) / n);'), /^For n = /],
      [passAtK('  return c / n;'), /^For n = /],
      [
        passAtK('  let all = 1;\n  for (let i = 0; i < k; i++) all *= Math.max(0, c - i) / (n - i);\n  return all;'),
        /^For n = /,
      ],
      [
        passAtK(
          '  let miss = 1;\n  for (let i = 0; i <= k; i++) miss *= Math.max(0, n - c - i) / (n - i);\n  return 1 - miss;',
        ),
        /^For n = /,
      ],
      [passAtK('  return String(k);'), /^For n = /],
    ],
  },
  'A.2': {
    right: [
      gradient(`  const loss = (v) => {
    const root = Math.sqrt(v.reduce((a, u) => a + u * u, 0) / v.length + eps);
    return v.reduce((a, u, k) => a + (dy[k] * weight[k] * u) / root, 0);
  };
  return x.map((_, k) => {
    const moved = (by) => loss(x.map((u, j) => (j === k ? u + by : u)));
    return (moved(1e-5) - moved(-1e-5)) / 2e-5;
  });`),
      gradient(
        `${ROOT}  return x.map((_, i) => x.reduce((sum, v, k) => sum + dy[k] * weight[k] * ((i === k ? rstd : 0) - (v * x[i] * rstd ** 3) / n), 0));`,
      ),
      gradient(`${ROOT}  let dot = 0;
  for (let k = 0; k < n; k++) dot += weight[k] * dy[k] * x[k] * rstd;
  const out = new Array(n);
  for (let k = 0; k < n; k++) out[k] = rstd * (weight[k] * dy[k] - (x[k] * rstd * dot) / n);
  return out;`),
    ],
    wrong: [
      [gradient(`${ROOT}  return x.map((_, k) => dy[k] * rstd);`), /^In a row of /],
      [
        gradient(
          `${ROOT}  const dot = x.reduce((a, v, k) => a + v * weight[k] * dy[k], 0);\n  return x.map((v, k) => rstd * weight[k] * dy[k] + (rstd ** 3 * v * dot) / n);`,
        ),
        /^In a row of /,
      ],
      [
        gradient(
          `${ROOT}  const dot = x.reduce((a, v, k) => a + v * weight[k] * dy[k], 0);\n  return x.map((v, k) => rstd * weight[k] * dy[k] - (rstd ** 2 * v * dot) / n);`,
        ),
        /^In a row of /,
      ],
      [gradient('  return dy;'), /^In a row of /],
      [gradient('  return x.map(() => NaN);'), /Return a list with one number/],
      [gradient('  return 1;'), /Return a list with one number/],
    ],
  },
};
