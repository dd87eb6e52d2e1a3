/** Types of the modules that scripts/lib/inline.mjs bundles into one string. */

/** Script of a worker with all its imports, as one text. */
declare module '*?inline-worker' {
  const code: string;
  export default code;
}

/** HTML of a page with its scripts and styles, as one text that loads no other file. */
declare module '*?inline-page' {
  const html: string;
  export default html;
}
