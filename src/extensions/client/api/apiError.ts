/** The error that refuses a request, in the shape of OpenAI's errors. */

import { InputError } from '../../../errors.ts';

interface ApiErrorFields {
  status?: number;
  /** The parameter that is wrong, e.g. `messages[2].content`. */
  param?: string | null;
  /** OpenAI's code for a program to read, e.g. `context_length_exceeded`. */
  code?: string | null;
}

const TYPES: Record<number, string> = {
  401: 'authentication_error',
  403: 'permission_error',
  404: 'not_found_error',
  409: 'conflict_error',
  429: 'rate_limit_error',
  500: 'server_error',
  503: 'server_error',
};

/** A request that cannot be served. `status` is the HTTP status; `param` and `code` are as in OpenAI's API. */
export class ApiError extends InputError {
  override name = 'ApiError';
  /** HTTP status code. */
  readonly status: number;
  /** OpenAI's error type for the status. */
  readonly type: string;
  /** The parameter that the error is about. */
  readonly param: string | null;
  /** OpenAI's code; null if OpenAI has none for this error. */
  readonly code: string | null;

  /** @param message what was found, what is allowed, what to do */
  constructor(message: string, { status = 400, param = null, code = null }: ApiErrorFields = {}) {
    super(message);
    this.status = status;
    this.type = TYPES[status] ?? 'invalid_request_error';
    this.param = param;
    this.code = code;
  }

  /** The body of an HTTP answer. */
  get body(): { error: { message: string; type: string; param: string | null; code: string | null } } {
    const { message, type, param, code } = this;
    return { error: { message, type, param, code } };
  }
}

/** Throws an ApiError about a parameter. */
export const refuse = (param: string, message: string, code: string | null = null): ApiError =>
  new ApiError(message, { param, code });
