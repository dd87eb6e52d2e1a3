/** The small part of protobuf's wire format that an ONNX file needs. A message is its fields, one after another. */

const join = (parts: Uint8Array[]): Uint8Array => {
  const out = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
};

/** Encodes `value` >= 0 as a varint: seven bits per byte, lowest first. */
function varint(value: number): Uint8Array {
  const bytes: number[] = [];
  for (let rest = value; bytes.length === 0 || rest > 0; rest = Math.floor(rest / 128))
    bytes.push((rest % 128) + (rest >= 128 ? 128 : 0));
  return Uint8Array.from(bytes);
}

export const message = (...fields: Uint8Array[]): Uint8Array => join(fields);
export const int = (field: number, value: number): Uint8Array => join([varint(field * 8), varint(value)]);
export const bytes = (field: number, value: Uint8Array): Uint8Array =>
  join([varint(field * 8 + 2), varint(value.length), value]);
export const text = (field: number, value: string): Uint8Array => bytes(field, new TextEncoder().encode(value));

export function float(field: number, value: number): Uint8Array {
  const four = new Uint8Array(4);
  new DataView(four.buffer).setFloat32(0, value, true);
  return join([varint(field * 8 + 5), four]);
}
