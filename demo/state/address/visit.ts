/** The address that this visit began with. */

export const address = new URLSearchParams(location.search);

/** Server of models that do not come with the page, if not huggingface.co. */
export const hub = address.get('hub') ?? undefined;
