/** Five short turns with a search between consecutive turns, whatever the model samples. */

const TURNS = 5;
const TURN_TOKENS = 12;

/** @param {{ registerAgentLoop: typeof import('webgrpo').registerAgentLoop }} library */
export default ({ registerAgentLoop }) =>
  registerAgentLoop('searches', async (sample) => {
    for (let turn = 1; ; turn++) {
      await sample.generate({ maxNewTokens: TURN_TOKENS });
      if (turn === TURNS) return 'completed';
      const stop = await sample.callTools([{ name: 'search', args: { query: `${turn}` } }]);
      if (stop) return stop;
    }
  });
