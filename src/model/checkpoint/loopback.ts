/** True if a URL's host name is this machine, so that the data does not leave it. */
export const isLoopback = (hostname: string): boolean => /^(localhost|127(\.\d+){3}|\[::1\])$/.test(hostname);
