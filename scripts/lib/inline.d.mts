import type { Plugin } from 'vite';
export function inline(): Plugin;
