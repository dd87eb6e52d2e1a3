/** @param {Pick<typeof import('webgrpo'), 'registerPolicyLoss' | 'defineLoss'>} library */
export default ({ registerPolicyLoss, defineLoss }) => {
  const loss = defineLoss({
    numbers: { beta: 0.1 },
    row: ({ beta }, { logp, oldLogp, advantage }) => ({
      loss: -advantage * logp + 0.5 * beta * (logp - oldLogp) ** 2,
      grad: -advantage + beta * (logp - oldLogp),
    }),
    wgsl: `fn rowGrad(t: Token) -> f32 { return -t.advantage + params.beta * t.logRatio; }`,
  });
  registerPolicyLoss('mine', loss);
};
