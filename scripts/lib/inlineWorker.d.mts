import type { Plugin } from 'vite';
export function inlineWorker(): Plugin;
