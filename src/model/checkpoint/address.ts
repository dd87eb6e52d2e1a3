/** Addresses of models: which values of `model.path` are downloaded, and which name a GGUF file. Imports nothing, because a page needs it early. */

/** Matches org/name and org/name@revision. A revision must not contain "..", which would request another path of the hub. */
export const REPOSITORY = /^([\w-][\w.-]*\/[\w-][\w.-]*)(?:@((?!.*\.\.)[\w./-]+))?$/;
/**
 * Matches a repository followed by a GGUF file in it, or by a quantization type: `:Q4_1` is the form of llama.cpp and
 * vLLM.
 */
export const GGUF_IN_REPOSITORY =
  /^([\w-][\w.-]*\/[\w-][\w.-]*(?:@(?!.*\.\.)[\w./-]+)?)(?:\/([\w-][\w.-]*\.gguf)|:(\w+))$/i;

export const isUrl = (model: string): boolean => /^https?:\/\//.test(model);

/** Removes the query from an address: the Hub's download links end in `?download=true`. */
export const withoutQuery = (url: string): string => url.replace(/\?download=true$/, '');

/** True if the value of `model.path` names something to download instead of a folder. */
export const isRemote = (model: string): boolean =>
  isUrl(model) || REPOSITORY.test(model) || GGUF_IN_REPOSITORY.test(model);

/** True if a path names a GGUF file. For addresses of the Hub see `isGgufModel`. */
export const isGguf = (path: string): boolean => /\.gguf$/i.test(path);

/** True if the value of `model.path` names a GGUF file, by a path or an address. */
export const isGgufModel = (model: string): boolean =>
  isGguf(isUrl(model) ? withoutQuery(model) : model) || GGUF_IN_REPOSITORY.test(model);

/** True if the address of a model is the name of a GGUF file that the browser stores. */
export const isKeptGguf = (address: string): boolean => isGguf(address) && !address.includes('/');
