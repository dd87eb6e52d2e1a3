/**
 * Programs that the model wrote, run in QuickJS in a worker that can be terminated. The tool `javascript` uses it. Task modules and the
 * page's rules of `modules` run in it too.
 */

export { type JavascriptLimits, javascriptTool, runJavascript } from './javascript.ts';
export { decodePlain, encodePlain, jsonDepth } from './plain.ts';
export { type Guest, startGuest } from './sandbox.ts';
export { type GuestFailure, type ModuleCall, type ModuleLoad, type SandboxRequest, VALUE } from './sandboxProgram.ts';
