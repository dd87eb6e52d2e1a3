/** Errors of requests, with the fields of OpenAI's API errors. */

import { InputError } from '../../../errors.ts';

interface ApiErrorFields {
  status?: number;
  /** Name of the invalid parameter, e.g. `messages[2].content`. */
  param?: string | null;
  /** OpenAI's error code, which programs read, e.g. `context_length_exceeded`. */
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

/** A request that cannot be served. `param` and `code` are the fields of OpenAI's API errors. */
export class ApiError extends InputError {
  override name = 'ApiError';
  /** HTTP status code. */
  readonly status: number;
  /** OpenAI's error type for this HTTP status. */
  readonly type: string;
  /** Name of the parameter that the error is about; null = none. */
  readonly param: string | null;
  /** OpenAI's error code; null if OpenAI has none for this error. */
  readonly code: string | null;

  /** @param message what was found, what is allowed, and what to do */
  constructor(message: string, { status = 400, param = null, code = null }: ApiErrorFields = {}) {
    super(message);
    this.status = status;
    this.type = TYPES[status] ?? 'invalid_request_error';
    this.param = param;
    this.code = code;
  }

  /** JSON body of the HTTP response. */
  get body(): { error: { message: string; type: string; param: string | null; code: string | null } } {
    const { message, type, param, code } = this;
    return { error: { message, type, param, code } };
  }
}

/** Returns an ApiError about one parameter. */
export const refuse = (param: string, message: string, code: string | null = null): ApiError =>
  new ApiError(message, { param, code });
