/** @param {import('webgrpo').ScoredSample} sample */
export default ({ problem, response, numToolCalls }) => {
  const answer = /#### (-?[0-9.]+)/.exec(response)?.[1];
  return answer === problem.answer ? 1 - 0.1 * numToolCalls : 0;
};
