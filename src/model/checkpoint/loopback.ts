/** True if the host name of a URL is this machine, so that data sent to it does not leave the machine. */
export const isLoopback = (hostname: string): boolean => /^(localhost|127(\.\d+){3}|\[::1\])$/.test(hostname);
