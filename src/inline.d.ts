/** Modules that scripts/lib/inline.mjs bundles into one string. */

/** A worker with all its imports, as the text of one script. */
declare module '*?inline-worker' {
  const code: string;
  export default code;
}

/** A page with its scripts and styles, as one HTML file that loads no other file. */
declare module '*?inline-page' {
  const html: string;
  export default html;
}
