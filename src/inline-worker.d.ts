/** A worker bundled into the text of one script: scripts/lib/inlineWorker.mjs. */
declare module '*?inline-worker' {
  const code: string;
  export default code;
}
