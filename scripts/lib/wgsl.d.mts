import type { Plugin } from 'vite';

export declare function shortWgsl(): Plugin;
