/** @type {(options: { most?: number }) => import('webgrpo').Task} */
export default ({ most = 20 }) => {
  /** @type {(id: string, key: number) => import('webgrpo').Problem} */
  const problem = (id, key) => {
    const [a, b] = [1, 2].map((i) => 1 + ((Math.imul(key + i, 0x9e3779b1) >>> 8) % most));
    return { id, messages: [{ role: 'user', content: `What is ${a} + ${b}?` }], answer: String(a + b) };
  };
  return {
    name: 'sums',
    train: (index, seed) => problem(`train-${index}`, 2 * (1000 * seed + index)),
    heldOut: (count) => Array.from({ length: count }, (_, i) => problem(`held-out-${i}`, 2 * i + 1)),
    reward: ({ problem, response }) => {
      const acc = response.match(/\d+/g)?.at(-1) === problem.answer ? 1 : 0;
      return { score: acc + 0.1 * (response.length % 3), acc };
    },
  };
};
