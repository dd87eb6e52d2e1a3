// The package's Node entry is CommonJS under "type": "module" and does not load. Its ES module does, but has no types.
declare module 'wgsl_reflect/wgsl_reflect.module.js' {
  export * from 'wgsl_reflect';
}
