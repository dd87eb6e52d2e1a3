/** True for a URL's host name that is this machine: what goes there crosses no wire. */
export const isLoopback = (hostname: string): boolean => /^(localhost|127(\.\d+){3}|\[::1\])$/.test(hostname);
