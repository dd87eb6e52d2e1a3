/** Bad input: the message says what was found, what is allowed and what to do. The command line exits with 2 on it. */
export class InputError extends Error {
  override name = 'InputError';
}
