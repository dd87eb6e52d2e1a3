/** The address at the start of this visit. */

export const address = new URLSearchParams(location.search);

/** Server of models that are not shipped with the page; undefined = huggingface.co. */
export const hub = address.get('hub') ?? undefined;
